package cgroup

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"unicode"
)

// Path names a cgroup as containerd does.
type Path struct {
	Spec      string // linux.cgroupsPath of the OCI spec; may be empty
	Namespace string // containerd's
	ID        string // of the container
	// Daemon has containerd's own cgroups, as Own returns them in a process that containerd
	// has started. A relative Spec needs them.
	Daemon map[string]string
}

// Resolve returns the path in every hierarchy (requirements.md#C1). An absolute path is
// below the root of the hierarchy, a relative one below containerd's own cgroup
// (relative.go):
//
//	/kubepods/pod1/app      itself
//	a/b                     itself
//	""                      /NAMESPACE/ID
//	a.slice:prefix:name     the scope's directory, as systemd nests slices
//
// The path is clean: ".." cannot lead above these directories.
func (p Path) Resolve() (string, error) {
	if strings.ContainsFunc(p.Spec, unicode.IsControl) {
		return "", fmt.Errorf("cgroupsPath %q: has control characters", p.Spec)
	}
	switch {
	case p.Spec == "":
		return p.byName()
	case p.isTriple():
		u, err := parseTriple(p.Spec)
		return u.path(), err
	}
	s := path.Clean("/" + p.Spec)
	if s == "/" {
		return "", fmt.Errorf("cgroupsPath %q: not a cgroup that a container can have", p.Spec)
	}
	if !path.IsAbs(p.Spec) {
		s = s[1:]
	}
	return s, nil
}

// byName returns the path /NAMESPACE/ID.
func (p Path) byName() (string, error) {
	if !isName(p.Namespace) || !isName(p.ID) {
		return "", fmt.Errorf("cgroup of %q in namespace %q: not usable as a path", p.ID, p.Namespace)
	}
	return filepath.Join("/", p.Namespace, p.ID), nil
}

// chosen reports whether a client has chosen this resolved path. containerd itself writes
// /NAMESPACE/ID.
func (p Path) chosen(resolved string) bool {
	name, err := p.byName()
	return err != nil || resolved != name
}

// Moved reports whether Create gave g another path than Resolve returns, because that one
// was in use. It returns the path that was in use as from.
func (p Path) Moved(g *Group) (from string, moved bool) {
	from, err := p.Resolve()
	return from, err == nil && !p.chosen(from) && from != g.Path()
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
	slice string // the slice that the unit is in
	dir   string // of the slice
	name  string
}

func (u unit) path() string { return path.Join(u.dir, u.name) }

// isScope reports whether the unit is a scope. Clients can also name a slice.
func (u unit) isScope() bool { return strings.HasSuffix(u.name, scopeSuffix) }

const scopeSuffix = ".scope"

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

// expandSlice returns the path of a slice. The parents of a slice are in its name:
// a-b.slice is /a.slice/a-b.slice.
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
