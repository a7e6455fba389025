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

// CheckSpec refuses a config.json that uses a field that neither the stage1 nor stage 0
// declares (docs/stage1-abi.md, section 9). The error names the first such field and unwraps
// to errdefs.ErrNotImplemented. Fields that no known version of the OCI spec has are
// ignored: CheckSpec returns texts for people that name them. If the operator refuses such
// fields, it returns an error that unwraps to errdefs.ErrInvalidArgument.
func (s *Stage1) CheckSpec(app *spec.App) (unknown []string, err error) {
	if !app.Root.IsObject() {
		return nil, Invalid("config.json is not a JSON object")
	}
	return s.check(app.Top())
}

// CheckProcess is CheckSpec for a config.json that has only this process.
func (s *Stage1) CheckProcess(p *spec.Process) (unknown []string, err error) {
	return s.check(p.Top(), "process")
}

// CheckResources is CheckSpec for a config.json that has only these limits.
func (s *Stage1) CheckResources(r *spec.Resources) (unknown []string, err error) {
	return s.check(r.Top(), "linux", "resources")
}

// check checks a field and everything below it. place is the path of the field in a
// config.json.
func (s *Stage1) check(f spec.Field, place ...string) (unknown []string, err error) {
	found := s.declared().First(f, place...)
	switch {
	case len(found.Uncovered) > 0:
		return nil, fmt.Errorf("config.json asks for %s, which stage1 %s does not support: %w", found.Uncovered[0], s.name, errdefs.ErrNotImplemented)
	case len(found.Unknown) > 0 && s.rules.RefuseUnknown:
		return nil, Invalid("config.json has %s, which the OCI runtime spec does not have, and this node's configuration refuses such fields", found.Unknown[0])
	}
	return found.Unknown, nil
}

// MayIgnore reports whether a field is excused.
func (s *Stage1) MayIgnore(pointer string) bool { return s.excused.Has(pointer) }
