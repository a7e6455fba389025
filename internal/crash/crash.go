// Package crash starts processes for tests that do to a pod what a shim does, and kills
// them at a given step. Only tests import it.
package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Life does the work of a shim on disk, with real processes, mounts and cgroups. It runs in
// a process of its own that can be killed at any step.
type Life struct {
	Base string // holds everything: rkt/, bundle/, pids, poststop
	ID   string
}

// New makes a bundle. When the test ends, the processes, mounts and cgroups that are left are
// removed.
func New(t *testing.T) Life {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to mount and to make cgroups")
	}
	l := Life{Base: t.TempDir(), ID: fmt.Sprintf("rkt-test-%d-%d", os.Getpid(), time.Now().UnixNano())}
	if err := os.Mkdir(l.Bundle(), 0o755); err != nil {
		t.Fatal(err)
	}
	hook := specs.Hook{Path: "/bin/sh", Args: []string{"sh", "-c", "echo x >> " + filepath.Join(l.Base, "poststop")}}
	spec := specs.Spec{
		Version: "1.2.0",
		Process: &specs.Process{Args: []string{"sleep", "300"}, Cwd: "/"},
		Root:    &specs.Root{Path: "rootfs"},
		Linux:   &specs.Linux{CgroupsPath: "/" + l.ID},
		Hooks:   &specs.Hooks{Poststop: []specs.Hook{hook}},
	}
	b, err := json.Marshal(spec)
	if err == nil {
		err = os.WriteFile(filepath.Join(l.Bundle(), "config.json"), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range l.pids() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		for _, m := range slices.Backward(Mounts(t, l.Base)) {
			_ = unix.Unmount(m, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		g := cgroup.Path{Spec: "/" + l.ID}
		_ = cgroup.RemoveStale(context.Background(), g)
	})
	return l
}

// Bundle returns the path of the app's bundle.
func (l Life) Bundle() string { return filepath.Join(l.Base, "bundle") }

// DataDir returns the path of the data directory.
func (l Life) DataDir() string { return filepath.Join(l.Base, "rkt") }

// pids returns the processes that were started, supervisors and apps.
func (l Life) pids() []int {
	b, _ := os.ReadFile(filepath.Join(l.Base, "pids"))
	var pids []int
	for f := range strings.FieldsSeq(string(b)) {
		pid, _ := strconv.Atoi(f)
		pids = append(pids, pid)
	}
	return pids
}

// command returns the command of another process that does the work of role and is killed
// at step.
func (l Life) command(role, step string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestOneLife$")
	cmd.Env = append(os.Environ(), "POD_LIFE="+role, "POD_LIFE_STEP="+step, "POD_LIFE_BASE="+l.Base, "POD_LIFE_ID="+l.ID)
	return cmd
}

// HaltAt starts a process that does the work of a shim until a step and waits there for
// ever. It returns that process.
func (l Life) HaltAt(t *testing.T, step string) *os.Process {
	t.Helper()
	cmd := l.command("shim", step+haltSuffix)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("it did not get to %q: %v", step, err)
	}
	return cmd.Process
}

// haltSuffix follows the name of a step at which the process waits and is not killed.
const haltSuffix = " and halt"

// Until starts a process in a role and waits for its end. The process is killed at the step
// with this number or name. Until returns false if the process has ended before that step.
func (l Life) Until(t *testing.T, role, step string) bool {
	t.Helper()
	out, err := l.command(role, step).CombinedOutput()
	var exit *exec.ExitError
	if err == nil {
		return false
	}
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%s until %s: %v\n%s", role, step, err, out)
	}
	return true
}

// AtEachStep calls check for step 1, step 2, and so on. check kills a process at that step
// and returns true. If the process has ended before the step, check returns false, and
// AtEachStep returns. least is the number of steps that the process must have at least, and
// what its name in errors.
func AtEachStep(t *testing.T, what string, least int, check func(n int, step string) (died bool)) {
	t.Helper()
	for n := 1; ; n++ {
		died := check(n, strconv.Itoa(n))
		if t.Failed() {
			t.Fatalf("died at step %d", n)
		}
		if died {
			continue
		}
		t.Logf("%s has %d steps", what, n-1)
		if n <= least {
			t.Errorf("%s has %d steps, want %d or more: the steps are not counted", what, n-1, least)
		}
		return
	}
}

// Waits calls work in a goroutine and fails the test if it returns within a moment. The
// returned function waits for the end of work, and returns its error.
func Waits(t *testing.T, what string, work func() error) (wait func() error) {
	t.Helper()
	const moment = 300 * time.Millisecond
	done := make(chan error, 1)
	began := time.Now()
	var took time.Duration
	go func() {
		err := work()
		took = time.Since(began)
		done <- err
	}()
	select {
	case err := <-done:
		if took < moment { // and not that this goroutine was not scheduled for so long
			t.Fatalf("%s did not wait: %v", what, err)
		}
		return func() error { return err }
	case <-time.After(moment):
	}
	return func() error { return <-done }
}

// Current returns the Life and the role of this process, which runs TestOneLife, and the
// function to call at every step.
func Current(t *testing.T) (l Life, role string, fault func(step string)) {
	t.Helper()
	role = os.Getenv("POD_LIFE")
	if role == "" {
		t.Skip("it is the process of other tests")
	}
	l = Life{Base: os.Getenv("POD_LIFE_BASE"), ID: os.Getenv("POD_LIFE_ID")}
	step := os.Getenv("POD_LIFE_STEP")
	if n, err := strconv.Atoi(step); err == nil {
		return l, role, dieAt(n)
	}
	return l, role, func(at string) {
		switch step {
		case at:
			dieAt(1)("")
		case at + haltSuffix:
			fmt.Println(at)
			time.Sleep(time.Hour) // Go ends a program in which no goroutine can go on
		}
	}
}

// dieAt returns a fault for a Store that kills this process at the n-th step, counted from
// 1.
func dieAt(n int) func(string) {
	return func(string) {
		if n--; n == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
}

// NothingLeft checks that nothing is left of the container and its pod.
func (l Life) NothingLeft(t *testing.T) {
	t.Helper()
	if left := Pods(t, l.DataDir()); len(left) != 0 {
		t.Errorf("pods left: %v", left)
	}
	if left := Mounts(t, l.Base); len(left) != 0 {
		t.Errorf("mounts left: %v", left)
	}
	if left, _ := filepath.Glob(filepath.Join(l.DataDir(), "debug/*")); len(left) != 0 {
		t.Errorf("debug apps left: %v", left)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
		if left, _ := filepath.Glob(pattern + l.ID + "*"); len(left) != 0 {
			t.Errorf("cgroups left: %v", left)
		}
	}
	for _, pid := range l.pids() {
		if s, err := proc.ReadStat(pid); err == nil && s.State != 'Z' && s.State != 'X' {
			t.Errorf("process left: %+v", s)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(l.Base, "poststop")); len(b) > 2 {
		t.Errorf("the poststop hook ran more than once: %q", b)
	}
}

// Age makes the remaining pods an hour old: the collector leaves a pod alone that is as
// young as after a crash, because its shim may still be running.
func (l Life) Age(t *testing.T) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	for _, p := range Pods(t, l.DataDir()) {
		_ = os.Chtimes(filepath.Join(l.DataDir(), "pods", p), old, old)
	}
}

// Pods returns the pods of a data directory, as STATE/UUID.
func Pods(t testing.TB, dataDir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dataDir, "pods", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i], _ = filepath.Rel(filepath.Join(dataDir, "pods"), found[i])
	}
	return found
}

// Mounts returns the mount points at and below a directory, in the order in which they
// were made.
func Mounts(t testing.TB, dir string) []string {
	t.Helper()
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Fatal(err)
	}
	var mounts []string
	for _, i := range infos {
		mounts = append(mounts, i.Mountpoint)
	}
	return mounts
}
