package conformance

import (
	"cmp"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
)

// Unchecked lists the fields that the image declares and whose effect no result shows, for
// apps and, if there are execs, for execs.
func (k *Kit) Unchecked(results []Result) []Unchecked {
	var all []Unchecked
	for _, l := range leaves() {
		if covers(stage1.Stage0Fields(k.image.Owns(abi.OwnResources)), l.pointer) || !k.honours(l.spec()) {
			continue
		}
		u, open := judge(l.pointer, results)
		if open && (len(all) == 0 || all[len(all)-1] != u) {
			all = append(all, u)
		}
	}
	return all
}

// judge reports whether the checks of a field have not all passed, with the reason.
func judge(field string, results []Result) (Unchecked, bool) {
	for _, u := range unchecked() {
		if covers([]string{u.Field}, field) {
			return u, true
		}
	}
	u := Unchecked{Field: field, Reason: NotRun, Words: "its check was not selected"}
	open := true
	for _, r := range results {
		if !slices.Contains(r.Fields, field) {
			continue
		}
		if r.Outcome != Passed {
			return Unchecked{field, cmp.Or(r.Reason, FailedCheck), r.ID + ": " + firstLine(r.Words)}, true
		}
		open = false
	}
	return u, open
}

// seen lists the kinds of isolation that the results prove: the checks of declared fields
// that have passed, for apps and for execs.
func seen(results []Result) string {
	var names []string
	for _, r := range results {
		name, found := strings.CutPrefix(r.ID, "honours/")
		if !found || r.Outcome != Passed {
			continue
		}
		if !slices.ContainsFunc(results, func(exec Result) bool {
			return exec.ID == "exec-honours/"+name && exec.Outcome == Failed
		}) {
			names = append(names, name)
		}
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}
