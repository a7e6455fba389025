package cgroup

import (
	"fmt"
	"path"
	"strings"
)

// Path names a cgroup as containerd does.
type Path struct {
	Spec      string // linux.cgroupsPath of the OCI spec; may be empty
	Namespace string // containerd's
	ID        string // of the container
}

// Resolve returns the path below the root of every hierarchy (requirements.md#C1):
//
//	/kubepods/pod1/app      itself
//	"" or app               /NAMESPACE/ID
//	a.slice:prefix:name     the scope's directory, as systemd nests slices
func (p Path) Resolve() (string, error) {
	if strings.ContainsRune(p.Spec, 0) {
		return "", fmt.Errorf("cgroupsPath %q: not a path", p.Spec)
	}
	if p.isTriple() {
		u, err := parseTriple(p.Spec)
		return u.path(), err
	}
	s := p.Spec
	if !strings.HasPrefix(s, "/") {
		if !isName(p.Namespace) || !isName(p.ID) {
			return "", fmt.Errorf("cgroup of %q in namespace %q: not usable as a path", p.ID, p.Namespace)
		}
		s = "/" + p.Namespace + "/" + p.ID
	}
	s = path.Clean(s)
	if s == "/" {
		return "", fmt.Errorf("cgroupsPath %q: not a cgroup that a container can have", p.Spec)
	}
	return s, nil
}

// isName reports whether s can be one element of a path.
func isName(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, "/\x00")
}

// isTriple reports whether the path is of the form slice:prefix:name.
func (p Path) isTriple() bool {
	return strings.Count(p.Spec, ":") == 2 && !strings.Contains(p.Spec, "/")
}

// unit is a unit of systemd's.
type unit struct {
	slice string // that it is in
	dir   string // of the slice
	name  string
}

func (u unit) path() string { return path.Join(u.dir, u.name) }

// isScope reports whether the unit is a scope. Clients can also name a slice.
func (u unit) isScope() bool { return strings.HasSuffix(u.name, scopeSuffix) }

const scopeSuffix = ".scope"

// like returns a unit of another name.
func (u unit) like(suffix string) unit {
	u.name = strings.TrimSuffix(u.name, scopeSuffix) + "-" + suffix + scopeSuffix
	return u
}

// parseTriple reads slice:prefix:name, which names the unit prefix-name.scope.
func parseTriple(triple string) (unit, error) {
	f := strings.Split(triple, ":")
	slice, prefix, name := f[0], f[1], f[2]
	if !isName(name) {
		return unit{}, fmt.Errorf("cgroupsPath %q: no name after the second colon", triple)
	}
	if slice == "" {
		slice = "system.slice"
	}
	dir, err := expandSlice(slice)
	if err != nil {
		return unit{}, fmt.Errorf("cgroupsPath %q: %w", triple, err)
	}
	if !strings.HasSuffix(name, ".slice") {
		if prefix != "" {
			name = prefix + "-" + name
		}
		name += scopeSuffix
	}
	return unit{slice: slice, dir: dir, name: name}, nil
}

// expandSlice nests a slice in its parents, which its name spells: a-b.slice is
// /a.slice/a-b.slice.
func expandSlice(slice string) (string, error) {
	base, ok := strings.CutSuffix(slice, ".slice")
	if !ok || base == "" {
		return "", fmt.Errorf("%q is not the name of a slice", slice)
	}
	if base == "-" {
		return "/", nil
	}
	dir, prefix := "/", ""
	for part := range strings.SplitSeq(base, "-") {
		if part == "" {
			return "", fmt.Errorf("%q is not the name of a slice", slice)
		}
		dir = path.Join(dir, prefix+part+".slice")
		prefix += part + "-"
	}
	return dir, nil
}
