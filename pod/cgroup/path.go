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

// Resolve returns the path below the root of every hierarchy (requirement C1):
//
//	/kubepods/pod1/app      itself
//	"" or app               /NAMESPACE/ID
//	a.slice:prefix:name     the scope's directory, as systemd nests slices
func (p Path) Resolve() (string, error) {
	if strings.ContainsRune(p.Spec, 0) {
		return "", fmt.Errorf("cgroupsPath %q: not a path", p.Spec)
	}
	if strings.Count(p.Spec, ":") == 2 && !strings.Contains(p.Spec, "/") {
		return resolveScope(p.Spec)
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

// isName tells whether s can be one element of a path.
func isName(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, "/\x00")
}

// resolveScope maps slice:prefix:name to …/slice/prefix-name.scope.
func resolveScope(triple string) (string, error) {
	f := strings.Split(triple, ":")
	slice, prefix, name := f[0], f[1], f[2]
	if !isName(name) {
		return "", fmt.Errorf("cgroupsPath %q: no name after the second colon", triple)
	}
	if slice == "" {
		slice = "system.slice"
	}
	dir, err := expandSlice(slice)
	if err != nil {
		return "", fmt.Errorf("cgroupsPath %q: %w", triple, err)
	}
	unit := name
	if !strings.HasSuffix(name, ".slice") {
		if prefix != "" {
			unit = prefix + "-" + name
		}
		unit += ".scope"
	}
	return path.Join(dir, unit), nil
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
