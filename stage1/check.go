package stage1

import (
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// Stage0Fields returns the fields of config.json that stage 0 enforces itself. ownResources
// says that the stage1 has abi.OwnResources.
func Stage0Fields(ownResources bool) []string {
	fields := []string{"/ociVersion", "/annotations", "/linux/cgroupsPath", "/hooks/poststop"}
	if !ownResources {
		fields = append(fields, "/linux/resources")
	}
	return fields
}

// CheckSpec returns an error that names the first field of a config.json that asks for
// something and that neither the stage1 nor stage 0 declares, and unwraps to
// errdefs.ErrNotImplemented: docs/stage1-abi.md, section 9. Otherwise it returns the fields
// that no version of the spec known here has and that are ignored, for a person to read. If
// the operator refuses these, they are errdefs.ErrInvalidArgument.
func (s *Stage1) CheckSpec(app *spec.App) (unknown []string, err error) {
	if !app.Root.IsObject() {
		return nil, Invalid("config.json is not a JSON object")
	}
	return s.check(app.Top())
}

// CheckProcess is CheckSpec for a config.json with this process alone.
func (s *Stage1) CheckProcess(p *spec.Process) (unknown []string, err error) {
	return s.check(p.Top(), "process")
}

// CheckResources is CheckSpec for a config.json with these limits alone.
func (s *Stage1) CheckResources(r *spec.Resources) (unknown []string, err error) {
	return s.check(r.Top(), "linux", "resources")
}

// check checks a field and all that is below it. place is where the field is in a
// config.json.
func (s *Stage1) check(f spec.Field, place ...string) (unknown []string, err error) {
	declared := position{nodes: []*fields{s.declared()}}
	var c checker
	for _, word := range place {
		declared = declared.below([]byte(word))
		c.path = append(c.path, []byte(word))
	}
	switch {
	case c.undeclared(f, declared):
		return nil, fmt.Errorf("config.json asks for %s, which stage1 %s does not support: %w", c.pointer(), s.name, errdefs.ErrNotImplemented)
	case len(c.unknown) > 0 && s.rules.RefuseUnknown:
		return nil, Invalid("config.json has %s, which the OCI runtime spec does not have, and this node's configuration refuses such fields", c.unknown[0])
	}
	return c.list(), nil
}

// position is a place in a declaration: the nodes that the path to a field matches. They
// are two where a * and a name match.
type position struct {
	nodes   []*fields
	covered bool // by a node here or above
}

// below returns the position one step further down.
func (p position) below(key []byte) position {
	down := position{covered: p.covered}
	for _, n := range p.nodes {
		for _, m := range [...]*fields{n.next[string(key)], n.any} {
			if m != nil {
				down.nodes = append(down.nodes, m)
				down.covered = down.covered || m.covered
			}
		}
	}
	return down
}
