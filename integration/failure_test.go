package integration

import (
	"strings"
	"testing"
)

type badProgram struct {
	name, program, words string
	runc                 string // the text of runc 1.1, if it differs; oci passes it on
}

// badPrograms cannot be executed. From these texts clients derive the exit code: 127 or 126.
var badPrograms = []badProgram{
	{name: "missing in PATH", program: "no-such-program", words: "executable file not found in $PATH"},
	{name: "missing", program: "/no/such/program", words: "no such file or directory"},
	{name: "not executable", program: "/etc/not-executable", words: "permission denied"},
	{name: "a directory", program: "/etc", words: "is a directory", runc: "permission denied"},
}

func (b badProgram) text(c *column) string {
	if c.usesRunc() && c.wraps != currentRunc && b.runc != "" {
		return b.runc
	}
	return b.words
}

func TestAProgramThatCannotBeExecutedFailsCreateAndLeavesNothing(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		for _, bad := range badPrograms {
			id := c.id()
			r := c.run(t, nil, id, bad.program)
			if r.code == 0 || !strings.Contains(r.stderr, bad.text(c)) {
				t.Errorf("%s: code %d, stderr %q, want %q in it (requirements.md#T1)", bad.name, r.code, r.stderr, bad.text(c))
			}
			if _, state := c.status(t, id); state != "" {
				t.Errorf("%s: the task is %s", bad.name, state)
			}
			c.expectNothingLeft(t)
		}
	})
}
