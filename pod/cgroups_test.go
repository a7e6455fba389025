package pod

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
)

// requirements.md#C1
func TestTwoContainersThatAskForOneCgroup(t *testing.T) {
	w := newWorld(t)
	path := "/rkt-pod-test-shared-" + strconv.Itoa(os.Getpid())
	w.resources = `,"cgroupsPath":"` + path + `"`
	w.mustRun("first", "sleep 100")
	for _, below := range []string{"", "/x"} {
		w.resources = `,"cgroupsPath":"` + path + below + `"`
		_, err := w.create("second", "sleep 100")
		if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "cgroup "+path+below) || !strings.Contains(err.Error(), "in use by container first") {
			t.Errorf("%s: %v", path+below, err)
		}
	}
	w.resources = `,"cgroupsPath":"` + path + `"`
	if st, err := w.Status("first", ""); err != nil || st.State != Running {
		t.Fatalf("the first: %+v, %v", st, err)
	}
	w.end("first")
	w.mustRun("second", "sleep 100")
	w.end("second")
}

// The cgroup in which relative paths begin is recorded when the pod is made.
func TestARelativeCgroupsPathOfAContainer(t *testing.T) {
	w := newWorld(t)
	own, err := cgroup.Own()
	if err != nil {
		t.Fatal(err)
	}
	w.cfg.Cgroups = map[string]string{}
	for controller := range own {
		w.cfg.Cgroups[controller] = "/" + w.cfg.Key.Namespace + "/daemon"
	}
	w.resources = `,"cgroupsPath":"../a"`
	w.mustRun("a", "sleep 100")
	app, err := w.app("a")
	if err != nil {
		t.Fatal(err)
	}
	if got := app.cgroup.Path(); !strings.HasPrefix(got, "/"+w.cfg.Key.Namespace+"/") || filepath.Base(got) != "a" {
		t.Errorf("it is in %s", got)
	}
	w.end("a")
	left, _ := filepath.Glob("/sys/fs/cgroup/*/" + w.cfg.Key.Namespace + "/daemon")
	for _, dir := range left {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	}
}

func TestAStage1WhoseAppIsOutsideOfItsCgroupIsAnError(t *testing.T) {
	w := newWorld(t)
	w.stage1.on(abi.AppAdd, func(c *fakeCall) error {
		g := c.Request.Cgroup // in one hierarchy the app is not in its cgroup
		g.Dirs = g.Dirs[:len(g.Dirs)-1]
		return nil
	})
	if _, err := w.create("a", "sleep 100"); err == nil || !strings.Contains(err.Error(), "is outside of its cgroup") {
		t.Errorf("Create: %v", err)
	}
}

// logged returns what this process logs until the test ends. Its only writer may be the test's
// goroutine.
func logged(t *testing.T) *bytes.Buffer {
	t.Helper()
	text, out := new(bytes.Buffer), log.L.Logger.Out
	log.L.Logger.SetOutput(text)
	t.Cleanup(func() { log.L.Logger.SetOutput(out) })
	return text
}

// Two daemons may have containers of one name in namespaces of one name. containerd itself asks for
// this path, so the second container gets another one.
func TestAContainerWhoseUsualCgroupIsInUseIsTold(t *testing.T) {
	w := newWorld(t)
	others, err := cgroup.Maker{}.Create(cgroup.Path{Namespace: w.cfg.Key.Namespace, ID: "a"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text := logged(t)
	w.mustCreate("a", "sleep 100")
	usual := "/" + w.cfg.Key.Namespace + "/a"
	if want := "the cgroup " + usual + " is in use, so the container is in " + usual + "-"; !strings.Contains(text.String(), want) {
		t.Errorf("the log lacks %q: %s", want, text)
	}
	w.mustStart("a", "")
	w.end("a")
	if err := others.Remove(t.Context()); err != nil {
		t.Error(err)
	}
}

// docs/limits.md lists the limits that are not set.
func TestLimitsThatAreNotSetAreTold(t *testing.T) {
	w := newWorld(t)
	text := logged(t)
	told := func(after string, want ...string) {
		t.Helper()
		for _, words := range want {
			if !strings.Contains(text.String(), words) {
				t.Errorf("after %s the log lacks %q: %s", after, words, text.String())
			}
		}
		if len(want) == 0 && text.Len() > 0 {
			t.Errorf("after %s the log has %s", after, text.String())
		}
		text.Reset()
	}
	w.resources = `,"resources":{"memory":{"limit":0,"kernel":7},"pids":{"limit":100}}`
	w.mustCreate("a", "sleep 100")
	told("Create", "container a: limits that are not set:", "linux.resources.memory.limit: 0", "linux.resources.memory.kernel: 7")
	w.mustStart("a", "")
	if err := w.Update(t.Context(), "a", []byte(`{"cpu":{"shares":0}}`)); err != nil {
		t.Fatal(err)
	}
	told("Update", "linux.resources.cpu.shares: 0")
	if err := w.Update(t.Context(), "a", []byte(`{"pids":{"limit":0},"cpu":{"idle":0}}`)); err != nil {
		t.Fatal(err)
	}
	told("an Update that sets all")
	w.end("a")
}
