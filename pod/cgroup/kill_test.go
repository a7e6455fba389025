package cgroup

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// explode runs a fork bomb in a cgroup, and returns when it is running. The bomb is
// bounded, so that the machine survives a failure of the test.
func explode(t *testing.T, g *Group, limit int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(g.Dir("pids"), "pids.max"), []byte(strconv.Itoa(limit)), 0); err != nil {
		t.Skip("nothing would bound the bomb: ", err)
	}
	enter(t, g, "b() { sleep 60 & sleep 60 & (b) & (b) & wait; }; b 2>/dev/null")
	wait.Until(t, "the bomb is at work", func() bool { pids, _ := g.Pids(); return len(pids) > limit/3 })
}

func TestKillEndsAForkBomb(t *testing.T) {
	needHost(t)
	g := create(t, "bomb", nil)
	explode(t, g, 150)
	if err := g.Kill(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if pids, err := g.Pids(); err != nil || len(pids) != 0 {
		t.Errorf("%v, %v survive", pids, err)
	}
}

// A shell that cannot fork ends by itself, with another code.
func TestKillEndsAShellThatForksByItsSignal(t *testing.T) {
	needHost(t)
	for range 20 {
		g := create(t, "shell", nil)
		cmd := enter(t, g, "while :; do (:); done")
		if err := g.Kill(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		<-cmd.ended
		if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGKILL {
			t.Fatalf("it ended with %s", cmd.ProcessState)
		}
		destroy(t, g)
	}
}

func TestKillWithoutThePidsControllerFreezesOnVersion1(t *testing.T) {
	h := needV1(t)
	if h.roots["freezer"] == "" {
		t.Skip("no freezer")
	}
	g := create(t, "frozen-kill", nil)
	enter(t, g, "while :; do sleep 0.01; done")
	r := g.Record()
	r.Dirs = map[string]string{"devices": r.Dirs["devices"], "freezer": r.Dirs["freezer"]}
	fewer, err := FromRecord(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := fewer.Kill(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
}

// requirements.md#T7
func TestKillEndsAPausedContainerAndSubCgroupsOnVersion1(t *testing.T) {
	needV1(t)
	g := create(t, "paused", nil)
	var sub []string
	for _, dir := range g.dirs {
		s := filepath.Join(dir, "sub")
		if err := os.Mkdir(s, 0o755); err != nil {
			t.Fatal(err)
		}
		sub = append(sub, s)
	}
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		b, err := os.ReadFile(filepath.Join(g.Dir("cpuset"), f))
		if err == nil {
			_ = os.WriteFile(filepath.Join(g.Dir("cpuset"), "sub", f), b, 0)
		}
	}
	enter(t, g, "exec sleep 60")
	enterDirs(t, sub, "tasks", "exec sleep 60")
	for _, dir := range []string{g.Dir("freezer") + "/sub", g.Dir("freezer")} {
		if err := os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("FROZEN"), 0); err != nil {
			t.Skip("no freezer: ", err)
		}
	}
	if pids, err := g.Pids(); err != nil || len(pids) != 2 {
		t.Errorf("pids %v, %v; want the two sleeps", pids, err)
	}
	if err := g.Kill(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := g.Remove(within(t, time.Minute)); err != nil {
		t.Errorf("requirements.md#C6: %v", err)
	}
}

func TestKillRefusesToKillThisProcess(t *testing.T) {
	needHost(t)
	if os.Getenv("CGROUP_TEST_SUICIDE") != "" {
		suicide()
	}
	g := create(t, "self", nil)
	other := enter(t, g, "exec sleep 60")
	// A second copy of the test enters and then kills its own cgroup.
	file := "tasks"
	if g.Version() == 2 {
		file = "cgroup.procs"
	}
	join := ""
	for _, d := range g.dirs {
		join += "echo 0 > " + d + "/" + file + "; "
	}
	cmd := exec.Command("/bin/sh", "-c", join+"exec /proc/self/fd/3 -test.run=TestKillRefusesToKillThisProcess")
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	cmd.ExtraFiles = []*os.File{self}
	cmd.Env = append(os.Environ(), "CGROUP_TEST_SUICIDE="+g.Path())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "not killed") {
		t.Errorf("%v: %s", err, out)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("another process in the cgroup was killed: %v", err)
	}
}

func suicide() {
	h, err := host()
	if err == nil {
		path := os.Getenv("CGROUP_TEST_SUICIDE")
		g := newGroup(Record{Version: h.version, Path: path, Dirs: h.dirs(path)}, nil)
		err = g.Kill(context.Background())
	}
	if err == nil {
		os.Exit(1)
	}
	os.Stdout.WriteString(err.Error())
	os.Exit(0)
}

func TestRemoveRetriesWhileTheLastProcessGoes(t *testing.T) {
	needHost(t)
	g := create(t, "busy", nil)
	enter(t, g, "exec sleep 0.2")
	if err := g.Remove(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
}

func TestRemoveGivesUpWithTheContextAndNamesWhoIsThere(t *testing.T) {
	needHost(t)
	g := create(t, "stays", nil)
	cmd := enter(t, g, "exec sleep 60")
	err := g.Remove(within(t, 100*time.Millisecond))
	if err == nil || !strings.Contains(err.Error(), strconv.Itoa(cmd.Process.Pid)) {
		t.Errorf("remove: %v, want the pid %d in it", err, cmd.Process.Pid)
	}
}
