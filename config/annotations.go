package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/pod/spec/spelling"
)

// Annotations of pods and containers. Keys that begin with AnnotationPrefix and a dot or a
// slash belong to this shim. A key that is not listed here is refused.
const (
	AnnotationPrefix = "io.containerd.rkt.v1"
	// Stage1Annotation names the stage1 that isolates the pod.
	Stage1Annotation = AnnotationPrefix + "/stage1"
	// GroupAnnotation puts a container into the pod of that name.
	GroupAnnotation = AnnotationPrefix + ".group"
)

func knownAnnotations() []string { return []string{Stage1Annotation, GroupAnnotation} }

// CheckAnnotations refuses unknown keys that begin with our prefix, because a misspelt key
// would otherwise have no effect. The error is for the author of the annotations.
func CheckAnnotations(annotations map[string]string) error {
	known := knownAnnotations()
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		rest, ours := strings.CutPrefix(key, AnnotationPrefix)
		if !ours || rest == "" || rest[0] != '.' && rest[0] != '/' || slices.Contains(known, key) {
			continue
		}
		return fmt.Errorf("unknown annotation %q: did you mean %q? this runtime knows %s and refuses others below %s: correct the key or remove it",
			key, spelling.Nearest(key, known), strings.Join(known, " and "), AnnotationPrefix)
	}
	return nil
}
