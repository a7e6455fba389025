package conformance_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// machineImage makes the image of testdata/machine: its apps are no processes of the host.
func machineImage(t *testing.T) string {
	t.Helper()
	rktctl(t)
	dir := filepath.Join(t.TempDir(), "machine")
	if out, err := exec.Command(filepath.Join(built.dir, "machine"), "init", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// The machine's programs cannot report their surroundings, so the checks that need such a
// report fail. All others pass: limits, statistics, OOM, pause and pids are the machine's own.
func TestAStage1WhoseAppsAreNotOfTheHostPassesWithItsOwnWords(t *testing.T) {
	blind := []string{"enter/descriptors", "enter/program", "limit/pids", "start/descriptors", "start/program"}
	v := verifyJSON(t, "--level", "3", machineImage(t))
	var failed []string
	passed := map[string]bool{}
	for _, c := range v.Checks {
		switch {
		case c.Outcome == "failed":
			failed = append(failed, c.ID)
			if !slices.Contains(blind, c.ID) {
				t.Errorf("%s: %s", c.ID, c.Words)
			}
		case c.Outcome == "passed":
			passed[c.ID] = true
		}
	}
	slices.Sort(failed)
	if !slices.Equal(failed, blind) {
		t.Errorf("%v have failed, want %v", failed, blind)
	}
	for _, id := range []string{
		"pause/app", "pause/exec", "pause/kill", "limit/memory", "update/memory", "stats/memory", "stats/processes", "oom/event",
		"network/told", "serve/same", "add/cgroup", "enter/inside", "crash/buried",
	} {
		if !passed[id] {
			t.Errorf("%s has not passed", id)
		}
	}
	for _, c := range v.Capabilities {
		if c.Name == "statistics and OOM events" && c.Value != "by app/stats and notices" {
			t.Errorf("%s: %s", c.Name, c.Value)
		}
	}
}

// Without the words of the annotation own, the same stage1 fails the checks, because its apps
// are then expected to be processes of the host.
func TestAMachineThatOwnsNothingIsFound(t *testing.T) {
	dir := machineImage(t)
	edit(t, filepath.Join(dir, "manifest"), `"resources processes namespaces rootfs disks layers chroot"`, `""`)
	v := verifyJSON(t, "--run", "limit/", "--run", "stats/", "--run", "oom/", dir)
	for _, c := range v.Checks {
		if c.Outcome == "passed" && (c.ID == "stats/memory" || c.ID == "oom/event") {
			t.Errorf("%s has passed", c.ID)
		}
	}
}

func edit(t *testing.T, file, old, replacement string) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	if !strings.Contains(string(text), old) {
		t.Fatalf("%s has no %s", file, old)
	}
	must(t, os.WriteFile(file, []byte(strings.Replace(string(text), old, replacement, 1)), 0o644))
}
