package conformance

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/stage1"
)

func TestEveryFieldThatCanBeDeclaredIsCheckedOrSaidNotToBe(t *testing.T) {
	checked := map[string]bool{}
	for _, c := range Checks() {
		for _, f := range c.Fields {
			checked[f] = true
		}
	}
	known := map[string]bool{}
	for _, l := range leaves() {
		known[l.pointer] = true
		cannot := slices.ContainsFunc(unchecked(), func(u Unchecked) bool { return covers([]string{u.Field}, l.pointer) })
		stage0 := covers(stage1.Stage0Fields(true), l.pointer)
		if n := count(checked[l.pointer], cannot, stage0); n != 1 {
			t.Errorf("%s: checked %v, cannot be checked %v, of stage 0 %v", l.pointer, checked[l.pointer], cannot, stage0)
		}
	}
	for f := range checked {
		if !known[f] {
			t.Errorf("%s is checked, and the specification does not have it", f)
		}
	}
	for _, u := range unchecked() {
		if !slices.ContainsFunc(leaves(), func(l leaf) bool { return covers([]string{u.Field}, l.pointer) }) {
			t.Errorf("%s cannot be checked, and the specification does not have it", u.Field)
		}
	}
}

func count(all ...bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}

func TestACheckAsksForTheFieldsThatItShows(t *testing.T) {
	for _, c := range honoursChecks() {
		asked := pointersOf(t, c.bare())
		for _, f := range c.Fields {
			if !slices.Contains(asked, f) && !strings.HasSuffix(f, "ID") { // ids may be 0
				t.Errorf("%s shows %s, and asks for %q", c.ID, f, asked)
			}
		}
	}
}

func TestASpecForAFieldHasThatFieldAlone(t *testing.T) {
	for _, l := range leaves() {
		if asked := pointersOf(t, l.spec()); len(asked) != 1 || asked[0] != l.pointer {
			t.Errorf("%s: the spec asks for %q", l.pointer, asked)
		}
	}
}

// pointersOf lists the values of a spec that are not empty, with * for indexes, and for keys of
// maps.
func pointersOf(t *testing.T, s *specs.Spec) []string {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	var all []string
	var walk func(v any, pointer string)
	walk = func(v any, pointer string) {
		isLeaf := slices.ContainsFunc(leaves(), func(l leaf) bool { return l.pointer == pointer })
		switch value := v.(type) {
		case map[string]any:
			for name, member := range value {
				if slices.ContainsFunc(leaves(), func(l leaf) bool { return strings.HasPrefix(l.pointer+"/", pointer+"/*/") }) {
					name = "*"
				}
				walk(member, pointer+"/"+name)
			}
		case []any:
			if !isLeaf {
				for _, member := range value {
					walk(member, pointer+"/*")
				}
				return
			}
			if len(value) > 0 {
				all = append(all, pointer)
			}
		default:
			if value != nil && value != false && value != 0.0 && value != "" {
				all = append(all, pointer)
			}
		}
	}
	walk(v, "")
	return all
}
