package image

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec/spelling"
)

// unknownNames returns the annotations of a stage1 that stage 0 does not know. For images
// of the rkt ABI it returns none, because rkt defined their annotations.
func unknownNames(annotations map[string]string, version int) []string {
	if version < abi.Version {
		return nil
	}
	known := knownNames()
	var unknown []string
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		name, ours := strings.CutPrefix(key, abi.AnnotationPrefix)
		if ours && !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// knownNames returns the annotations of a stage1, without their prefix.
func knownNames() []string {
	names := []string{
		strings.TrimPrefix(abi.AnnotationVersion, abi.AnnotationPrefix),
		strings.TrimPrefix(abi.AnnotationFeatures, abi.AnnotationPrefix),
		strings.TrimPrefix(abi.AnnotationServe, abi.AnnotationPrefix),
		strings.TrimPrefix(abi.AnnotationOwn, abi.AnnotationPrefix),
		strings.TrimPrefix(abi.AnnotationDeadlines, abi.AnnotationPrefix),
		strings.TrimPrefix(abi.AnnotationSkip, abi.AnnotationPrefix),
		strings.TrimPrefix(abi.AnnotationWithout, abi.AnnotationPrefix),
	}
	for _, e := range abi.Entrypoints() {
		names = append(names, string(e))
	}
	return names
}

// checkNames returns an error for an unknown annotation that is probably misspelt. source
// is the name of the image in errors.
func (m *manifest) checkNames(source string) error {
	for _, name := range m.unknown {
		if meant := spelling.Likely(name, knownNames()); meant != "" {
			return invalid("%s: unknown annotation %s%s: did you mean %s%s?",
				filepath.Join(source, "manifest"), abi.AnnotationPrefix, name, abi.AnnotationPrefix, meant)
		}
	}
	return nil
}

// checkFields returns an error for a pointer to an unknown field that is probably misspelt.
// It ignores images of the rkt ABI, whose pointers stage 0 does not read.
func (m *manifest) checkFields(f features) error {
	if m.version < abi.Version {
		return nil
	}
	for _, p := range f.Fields {
		if miss := spec.Follow(p); miss != nil && miss.Meant != "" {
			return invalid("features document: %q leads to no field of config.json: did you mean %q?", p, miss.Meant)
		}
	}
	return nil
}

// Warnings returns a sentence for each annotation and each field of the features document that
// stage 0 does not know. They are no errors, because a later release may know them.
func (i *Image) Warnings() []string {
	var all []string
	for _, name := range i.manifest.unknown {
		all = append(all, fmt.Sprintf("its manifest has the unknown annotation %s%s, which is ignored", abi.AnnotationPrefix, name))
	}
	if i.RktABI() {
		return all
	}
	for _, p := range i.features.Fields {
		if miss := spec.Follow(p); miss != nil {
			all = append(all, fmt.Sprintf("its features document declares %q, which leads to no field of config.json: %s", p, miss.Why))
		}
	}
	return all
}
