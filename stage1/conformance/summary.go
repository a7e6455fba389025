package conformance

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// Capability is a feature that clients use, with the way in which the stage1 provides
// it.
type Capability struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Capabilities sums up the entrypoints of the image and the results.
func (k *Kit) Capabilities(results []Result) []Capability {
	var all []Capability
	add := func(name, value string) { all = append(all, Capability{name, value}) }
	either := func(name string, e abi.Entrypoint, there, absent string) {
		if k.image.Has(e) {
			add(name, there)
		} else {
			add(name, absent)
		}
	}
	either("apps in a pod", abi.AppAdd, "many", "one")
	add("isolation seen in force", seen(results))
	add("what an operator has to accept", cmp.Or(strings.Join(k.config.Excuse, ", "), "nothing"))
	either("exec", abi.Enter, "by enter", "no")
	add("terminal", shown(results, "terminal/", "yes", "no"))
	either("signals", abi.AppSignal, "by app/signal", "to the host's pid")
	either("stop", abi.Stop, "by stop", "by SIGTERM to run")
	either("pause and resume", abi.AppPause, "by app/pause and app/resume", "by the cgroup's freezer")
	limits, counts := "by app/update and the cgroup", "by the cgroup"
	if k.image.Owns(abi.OwnResources) {
		limits, counts = "by app/update", "by app/stats and notices"
	}
	either("update", abi.AppUpdate, limits, "by the cgroup")
	add("statistics and OOM events", shown(results, "oom/", counts, "no"))
	add("user namespaces", shown(results, "user/mapped", "yes", "no"))
	either("checkpoint and restore", abi.AppCheckpoint, shown(results, "checkpoint/", "by app/checkpoint", "declared, and not possible or not right here"), "no")
	for _, r := range results {
		for _, name := range slices.Sorted(maps.Keys(r.Notes)) {
			value := r.Notes[name]
			if name == "exits are recorded by" && value == "stage0" {
				value = "stage 0 (exits are lost while the shim is dead)"
			}
			add(name, value)
		}
	}
	return all
}

// shown returns yes if there are results for an area and all of them have passed,
// otherwise no.
func shown(results []Result, area, yes, no string) string {
	found := false
	for _, r := range results {
		if !strings.HasPrefix(r.ID, area) {
			continue
		}
		if r.Outcome != Passed {
			return no
		}
		found = true
	}
	if !found {
		return "not checked"
	}
	return yes
}
