package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/appc/spec/schema/types"
	"github.com/containerd/errdefs"
)

// resolver finds the dependencies of an ACI.
type resolver struct {
	rules  *ACIs
	byPath map[string]*aci // the ACIs whose manifests were read; nil for other files
	chosen map[string]*aci // by dependencyKey
	found  map[string]*aci // by image id
	under  []*aci          // the images from the top to the one that is being resolved
	named  map[string]bool // image ids that another image names, so that the other's signature covers them
	count  int             // number of images in the tree of dependencies
	dirs   []string
}

// maxDependencies bounds the tree of an image's dependencies. An ACI that two others name
// counts twice.
const maxDependencies = 128

// resolve finds all dependencies of an ACI, and reads each of them once.
func (r *ACIs) resolve(ctx context.Context, top *aci) (*resolver, error) {
	s := &resolver{
		rules: r, dirs: r.searched(top.path), byPath: map[string]*aci{top.path: top},
		chosen: map[string]*aci{}, found: map[string]*aci{}, named: map[string]bool{},
	}
	if err := top.read(ctx); err != nil {
		return nil, err
	}
	s.found[top.id] = top
	return s, s.descend(ctx, top)
}

// descend resolves the dependencies of an image, depth first.
func (s *resolver) descend(ctx context.Context, a *aci) error {
	if s.count++; s.count > maxDependencies {
		return invalid("it depends on more than %d images", maxDependencies)
	}
	s.under = append(s.under, a)
	defer func() { s.under = s.under[:len(s.under)-1] }()
	for _, d := range a.manifest.Dependencies {
		next, err := s.choose(ctx, d)
		if err != nil {
			return fmt.Errorf("%s depends on %s: %w", a.manifest.Name, describe(d), err)
		}
		if slices.Contains(s.under, next) {
			return invalid("dependencies go in a circle: %s", s.circle(next))
		}
		if err := s.descend(ctx, next); err != nil {
			return err
		}
	}
	return nil
}

// circle describes a circle of dependencies, which begins and ends with the same ACI.
func (s *resolver) circle(again *aci) string {
	var names []string
	for _, a := range append(s.under[slices.Index(s.under, again):], again) {
		names = append(names, fmt.Sprintf("%s (%s)", a.manifest.Name, a.path))
	}
	return strings.Join(names, " → ")
}

// choose returns the image that a dependency names. It looks in the first directory that
// has an ACI with this name and these labels. If that directory has several, they must be
// the same image.
func (s *resolver) choose(ctx context.Context, d types.Dependency) (*aci, error) {
	key := dependencyKey(d.ImageName, d.Labels)
	if d.ImageID != nil {
		key += " " + d.ImageID.String()
	}
	if a := s.chosen[key]; a != nil {
		return a, nil
	}
	var others []string
	for _, dir := range s.dirs {
		candidates, err := s.candidates(ctx, dir, d)
		if err != nil {
			return nil, err
		}
		var fitting []*aci
		for _, a := range candidates {
			if d.ImageID == nil || strings.HasPrefix(a.id, d.ImageID.String()) {
				fitting = append(fitting, a)
			} else {
				others = append(others, fmt.Sprintf("%s is %s", a.path, a.id))
			}
		}
		if len(fitting) == 0 {
			continue
		}
		a := fitting[0]
		for _, b := range fitting[1:] {
			if a.id != b.id {
				return nil, invalid("both %s and %s are called so: name one by labels that only it has, or by its imageID", a.path, b.path)
			}
		}
		if size := int64(d.Size); size != 0 && size != a.size && size != a.plain {
			return nil, fmt.Errorf("%s has %d bytes, unpacked %d, and should have %d: %w", a.path, a.size, a.plain, size, errdefs.ErrDataLoss)
		}
		s.named[a.id] = s.named[a.id] || d.ImageID != nil
		s.chosen[key] = a
		return a, nil
	}
	if len(others) > 0 {
		return nil, fmt.Errorf("no image with this imageID is in %s: %s: %w", strings.Join(s.dirs, " or "), strings.Join(others, ", "), errdefs.ErrNotFound)
	}
	return nil, fmt.Errorf("no ACI of this name with these labels is in %s: put it there: %w", strings.Join(s.dirs, " or "), errdefs.ErrNotFound)
}

// candidates returns the ACIs of a directory that have the name and labels of a dependency.
// It reads each to its end. It ignores files that are not ACIs.
func (s *resolver) candidates(ctx context.Context, dir string, d types.Dependency) ([]*aci, error) {
	files, err := acisIn(dir)
	if err != nil {
		return nil, err
	}
	var all []*aci
	for _, file := range files {
		a, ok := s.byPath[file]
		if !ok {
			a, _ = peekACI(file)
			s.byPath[file] = a
		}
		if a == nil || !a.matches(d.ImageName, d.Labels) {
			continue
		}
		if err := a.read(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if first := s.found[a.id]; first != nil {
			a = first
		}
		s.found[a.id] = a
		all = append(all, a)
	}
	return all, nil
}

// acisIn lists the files of a directory whose names end in .aci, sorted.
func acisIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var files []string
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		if !strings.HasSuffix(file, ".aci") {
			continue
		}
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() {
			files = append(files, file)
		}
	}
	return files, err
}

// describe returns the name and the labels of a dependency, for errors.
func describe(d types.Dependency) string {
	text := d.ImageName.String()
	for _, l := range d.Labels {
		text += fmt.Sprintf(",%s=%s", l.Name, l.Value)
	}
	if d.ImageID != nil {
		text += " with the imageID " + d.ImageID.String()
	}
	return text
}

func dependencyKey(name types.ACIdentifier, labels types.Labels) string {
	return describe(types.Dependency{ImageName: name, Labels: labels})
}
