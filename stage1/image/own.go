package image

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// Bounds of the deadlines that an image may declare.
const (
	minDeadline = time.Second
	maxDeadline = 10 * time.Minute
)

// ownNeeds are the entrypoints without which an image cannot do what it declares as its own.
var ownNeeds = map[abi.Own][]abi.Entrypoint{
	abi.OwnResources: {abi.AppStats},
	abi.OwnProcesses: {abi.AppSignal, abi.AppStats},
}

// parseOwn parses the value of abi.AnnotationOwn of an image with these entrypoints.
func parseOwn(value string, entrypoints map[abi.Entrypoint]string) ([]abi.Own, error) {
	var own []abi.Own
	for _, word := range strings.Fields(value) {
		o := abi.Own(word)
		if !slices.Contains(abi.Owns(), o) {
			return nil, fmt.Errorf("%q is not one of %v", word, abi.Owns())
		}
		for _, e := range ownNeeds[o] {
			if entrypoints[e] == "" {
				return nil, fmt.Errorf("%s needs the entrypoint %s", o, e)
			}
		}
		own = append(own, o)
	}
	if slices.Contains(own, abi.OwnProcesses) && !slices.Contains(own, abi.OwnResources) {
		return nil, fmt.Errorf("%s needs %s, because the app's limits would be those of its proxy", abi.OwnProcesses, abi.OwnResources)
	}
	return own, nil
}

// parseSkip parses the value of abi.AnnotationSkip of an image with these entrypoints.
func parseSkip(value string, entrypoints map[abi.Entrypoint]string) ([]abi.Entrypoint, error) {
	var skipped []abi.Entrypoint
	for _, word := range strings.Fields(value) {
		e := abi.Entrypoint(word)
		if e != abi.GC || entrypoints[e] == "" {
			return nil, fmt.Errorf("%q is not the entrypoint %s, which the image must declare", word, abi.GC)
		}
		skipped = append(skipped, e)
	}
	return skipped, nil
}

// Stage2 is the directory of a tree in which rkt's versions have the roots of apps.
const Stage2 = "opt/stage2"

// parseWithout parses the value of abi.AnnotationWithout of an image with these entrypoints, and reports
// whether the image does without Stage2.
func parseWithout(value string, entrypoints map[abi.Entrypoint]string) (without bool, err error) {
	for _, word := range strings.Fields(value) {
		if word != Stage2 {
			return false, fmt.Errorf("%q is not %s", word, Stage2)
		}
		if slices.ContainsFunc(addsApps(), func(e abi.Entrypoint) bool { return entrypoints[e] == "" }) {
			return false, fmt.Errorf("an image of immutable pods needs %s, where stage 0 writes the app's manifest", Stage2)
		}
		without = true
	}
	return without, nil
}

// parseDeadlines parses the value of abi.AnnotationDeadlines.
func parseDeadlines(value string) (map[abi.Entrypoint]time.Duration, error) {
	limits := map[abi.Entrypoint]time.Duration{}
	for _, word := range strings.Fields(value) {
		name, text, _ := strings.Cut(word, "=")
		e := abi.Entrypoint(name)
		if !slices.Contains(abi.Entrypoints(), e) {
			return nil, fmt.Errorf("%q is not an entrypoint", name)
		}
		limit, err := time.ParseDuration(text)
		if err != nil || limit < minDeadline || limit > maxDeadline {
			return nil, fmt.Errorf("%q is not a duration from %s to %s, such as %s=90s", word, minDeadline, maxDeadline, name)
		}
		limits[e] = limit
	}
	return limits, nil
}
