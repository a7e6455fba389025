package stage1

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// stage0Fields returns the fields of config.json that stage 0 enforces itself.
func stage0Fields() []string {
	return []string{"/ociVersion", "/annotations", "/linux/cgroupsPath", "/linux/resources", "/hooks/poststop"}
}

// CheckSpec returns an error that names the first field of a config.json that asks for
// something and that neither the stage1 nor stage 0 declares, and unwraps to
// errdefs.ErrNotImplemented: docs/stage1-abi.md, section 9.
func (s *Stage1) CheckSpec(app *spec.App) error { return checkSpec(app.Root, s.declared(), s.name) }

// CheckProcess is CheckSpec for a config.json with this process alone.
func (s *Stage1) CheckProcess(p *spec.Process) error {
	below, covered := descend([]*fields{s.declared()}, []byte("process"))
	if covered {
		return nil
	}
	if pointer, asks := undeclared(p.Root, below); asks {
		return unsupported("/process"+pointer, s.name)
	}
	return nil
}

// checkSpec returns an error that names the first value of a config.json that asks for
// something and is not declared. What is not an object is errdefs.ErrInvalidArgument.
func checkSpec(root spec.Value, declared *fields, stage1 string) error {
	if !root.IsObject() {
		return Invalid("config.json is not a JSON object")
	}
	if pointer, asks := undeclared(root, []*fields{declared}); asks {
		return unsupported(pointer, stage1)
	}
	return nil
}

func unsupported(pointer, stage1 string) error {
	return fmt.Errorf("config.json asks for %s, which stage1 %s does not support: %w", pointer, stage1, errdefs.ErrNotImplemented)
}

// undeclared reports whether a value, or something below it, asks for what is not
// declared, and returns the JSON pointer from the value to there. nodes are the places in
// the declaration that the path to the value matches: two where a * and a name do. The
// caller has made sure that none covers the value.
func undeclared(v spec.Value, nodes []*fields) (pointer string, asks bool) {
	if len(nodes) == 0 || !v.HasMembers() {
		return "", v.Asks() // the outermost undeclared value is the one to name
	}
	for m := v.Members(); m.Next(); {
		name := m.Name()
		below, covered := descend(nodes, name)
		if covered {
			continue
		}
		if pointer, asks := undeclared(m.Value, below); asks {
			return "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(string(name)) + pointer, true
		}
	}
	return "", false
}

// descend returns the nodes that match one step further down.
func descend(nodes []*fields, key []byte) (below []*fields, covered bool) {
	for _, n := range nodes {
		for _, m := range [...]*fields{n.next[string(key)], n.any} {
			if m == nil {
				continue
			}
			if m.covered {
				return nil, true
			}
			below = append(below, m)
		}
	}
	return below, false
}
