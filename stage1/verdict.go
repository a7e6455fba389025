package stage1

import (
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/fields"
)

// Verdict lists the fields of a config.json that a stage1 does not enforce, as JSON pointers.
type Verdict struct {
	// Refused are fields because of which CheckSpec fails; its error names the first one.
	Refused []string
	// Excused are fields that ask for something, and that the operator lets the stage1
	// ignore. If a part of such a field is refused, it is not among them.
	Excused []string
	// Unknown are texts about fields that the OCI runtime spec does not have. CheckSpec
	// fails because of them if RefuseUnknown is set.
	Unknown       []string
	RefuseUnknown bool
}

// Judge returns all that CheckSpec would find in a config.json, and not only the first
// field. Both use the same walk.
func (s *Stage1) Judge(app *spec.App) Verdict {
	found := s.declared().All(app.Top())
	own := fields.NewSet(Stage0Fields(s.Owns(abi.OwnResources)), s.Dialect.Fields(s.Image)).All(app.Top())
	v := Verdict{Refused: found.Uncovered, Unknown: found.Unknown, RefuseUnknown: s.rules.RefuseUnknown}
	for _, p := range own.Uncovered {
		if !slices.ContainsFunc(found.Uncovered, func(r string) bool { return r == p || strings.HasPrefix(r, p+"/") }) {
			v.Excused = append(v.Excused, p)
		}
	}
	return v
}
