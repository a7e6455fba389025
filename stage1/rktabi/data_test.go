package rktabi

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
)

// What stage 0 reads and writes where programs of a pod can write is data: a fifo does not block it, and a file is
// read up to a bound.
func TestFilesThatAPodCanWriteDoNotBlockStage0(t *testing.T) {
	const app = "app-1"
	for name, c := range map[string]struct {
		path string // in the tree
		do   func(t *testing.T, dir string)
	}{
		"the status":             {"rkt/status/" + app, func(_ *testing.T, dir string) { _, _ = abi.ReadStatus(stage1.StatusDir(dir), app, "") }},
		"the environment":        {"rkt/env/" + app, func(_ *testing.T, dir string) { _ = aComposition(dir, app).Write() }},
		"the app's manifest":     {"opt/stage2/" + app + "/manifest", func(_ *testing.T, dir string) { _ = aComposition(dir, app).Write() }},
		"the mark of its making": {"rkt/status/" + app + "-created", func(_ *testing.T, dir string) { _ = aComposition(dir, app).Write() }},
		"the mark of its start":  {"rkt/status/" + app + "-started", func(_ *testing.T, dir string) { _ = immutable.MarkStarted(dir, app) }},
		"a unit":                 {ownUnits + "/a.conf", func(_ *testing.T, dir string) { _ = putUnit(dir, "a.conf", "x") }},
		"where its streams are":  {"rkt/" + muxDir + "/" + app, func(_ *testing.T, dir string) { _, _ = openMuxDir(dir, "rkt/"+muxDir+"/"+app) }},
		"its endpoints":          {"rkt/" + muxDir + "/" + app + "/endpoints", func(_ *testing.T, dir string) { _, _ = readMux(dir, app) }},
		"the ready link":         {"rkt/" + readyLink, func(_ *testing.T, dir string) { _, _ = (&readiness{dir: dir}).there(&watch{}) }},
		"the pid":                {"../../pid", func(_ *testing.T, dir string) { immutable.SupervisorOf(dir) }},
		"the cgroup":             {"../../" + machineFile, func(_ *testing.T, dir string) { _ = detachMachine(dir) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tree := filepath.Join(dir, stage1.RootfsDir)
			for _, d := range []string{"rkt/status", "rkt/env", "opt/stage2", ownUnits} {
				must(t, os.MkdirAll(filepath.Join(tree, d), 0o755))
			}
			must(t, os.WriteFile(filepath.Join(dir, "pod"), podManifest(t), 0o640))
			path := filepath.Join(tree, c.path)
			must(t, os.MkdirAll(filepath.Dir(path), 0o755))
			must(t, unix.Mkfifo(path, 0o644))
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.do(t, dir)
			}()
			select {
			case <-done:
			case <-time.After(5 * time.Second):
				t.Error("it blocks")
				if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil { // both ends, so that it goes on
					<-done
					_ = f.Close()
				}
			}
		})
	}
}

func TestAPidIsReadFromASmallFileAndThroughNoLink(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, immutable.PidFile)
	must(t, os.WriteFile(filepath.Join(dir, "other"), []byte("4711\n"), 0o644))
	must(t, os.Symlink("other", file))
	if pid := immutable.SupervisorOf(dir); pid != 0 {
		t.Errorf("by a link, the pid is %d", pid)
	}
	must(t, os.Remove(file))
	must(t, os.WriteFile(file, []byte("4711\n"), 0o644))
	must(t, os.Truncate(file, 1<<40)) // reading all of it would need a terabyte
	if pid := immutable.SupervisorOf(dir); pid != 0 {
		t.Errorf("of a huge file, the pid is %d", pid)
	}
}
