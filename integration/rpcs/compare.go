package rpcs

import (
	"fmt"
	"slices"
)

// Compare compares the answers of one shim with those of runc's, and returns the differences
// without a reason. If calls are given, only these are compared.
func Compare(runc, rkt Answers, calls ...string) (problems []string) {
	for _, q := range Questions() {
		if len(calls) > 0 && !slices.Contains(calls, q.Call) {
			continue
		}
		a, asked := runc[q]
		b, answered := rkt[q]
		switch {
		case !asked:
			problems = append(problems, fmt.Sprintf("%s: runc's shim was not asked (make test-client)", q))
		case !answered:
			problems = append(problems, fmt.Sprintf("%s: not asked", q))
		case !a.Same(b) && q.Reason(a, b) == "":
			problems = append(problems, fmt.Sprintf("%s: %s %q, runc's shim: %s %q", q, b, b.Text, a, a.Text))
		}
	}
	return problems
}
