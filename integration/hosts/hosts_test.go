package hosts

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestOddHosts(t *testing.T) {
	if why := missing(); why != "" {
		t.Skip(why)
	}
	for _, s := range states() {
		if !full && !s.short {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			n := s.start(t)
			result := &result{State: s.name, Failed: map[string]map[string]string{}}
			for _, c := range columns() {
				result.Failed[c.name] = c.try(t, n)
			}
			found.add(result)
			for _, c := range columns() {
				if c.name != runc {
					s.judge(t, c.name, result)
				}
			}
		})
	}
}

// numbers differ from step to step.
var numbers = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|-[0-9a-f]{14,16}-|\b[0-9]+\b`)

// judge compares the results of a stage1 with those of runc.
func (s state) judge(t *testing.T, column string, r *result) {
	t.Helper()
	refused := cmp.Or(s.refused[column], s.refused[""])
	failed := r.Failed[column]
	if refused != "" && len(failed) == 0 {
		t.Errorf("%s: nothing fails: remove the state's entry %q", column, refused)
	}
	// Many steps have the same error.
	faults := map[string][]string{}
	for _, step := range slices.Sorted(maps.Keys(failed)) {
		_, withRunc := r.Failed[runc][step]
		if refused != "" && strings.Contains(failed[step], refused) || refused == "" && withRunc {
			continue
		}
		text := numbers.ReplaceAllString(failed[step], "N")
		faults[text] = append(faults[text], step)
	}
	for text, steps := range faults {
		t.Errorf("%s: %s: %s (want an error with %q)", column, strings.Join(steps, ", "), text, refused)
	}
}
