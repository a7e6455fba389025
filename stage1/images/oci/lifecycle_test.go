package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func TestAnAppLivesFromAddToRm(t *testing.T) {
	p := startPod(t)
	out, stdout := pipe(t)
	a := p.app("web", nil, "sh", "-c", "echo hello; read x; exit 42")
	in, stdin := pipe(t)
	a.add(in, stdout, nil)
	stdout.Close()
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.PID)); err != nil || !strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())) {
		t.Errorf("the app is not left to this process: %v", err)
	}
	p.expect(abi.ExitFailedPrecondition, abi.AppRm, "web")
	p.expect(0, abi.AppStart, "web")
	if text := p.expect(abi.ExitFailedPrecondition, abi.AppStart, "web"); !strings.Contains(text, "running") {
		t.Errorf("start of a running app: %q", text)
	}
	p.expect(abi.ExitFailedPrecondition, abi.AppRm, "web")
	stdin.Close()
	a.ends(t, 42)
	if b, err := io.ReadAll(out); err != nil || string(b) != "hello\n" {
		t.Errorf("the app wrote %q (%v)", b, err)
	}
	if text := p.expect(abi.ExitFailedPrecondition, abi.AppStart, "web"); !strings.Contains(text, "stopped") {
		t.Errorf("start of a stopped app: %q", text)
	}
	p.expect(0, abi.AppStop, "web")
	p.expect(0, abi.AppRm, "web")
	p.expect(0, abi.AppRm, "web")
	p.expect(abi.ExitNotFound, abi.AppStop, "web")
	p.expect(abi.ExitNotFound, abi.AppStart, "web")
	if left := p.apps(); len(left) > 0 {
		t.Errorf("state of %v is left", left)
	}
	p.expect(0, abi.Stop, "")
	p.over()
	p.expect(0, abi.Stop, "")
}

// The start command of runc 1.1 with the fixes of CVE-2024-21626 returns a moment too
// early: a signal in that moment would reach runc's init and not the program.
func TestWhenStartReturnsTheProgramHasBeenExecuted(t *testing.T) {
	p := startPod(t)
	for range 20 {
		a := p.app("web", nil, "sleep", "1000").start()
		if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", a.PID)); err != nil || string(name) != "sleep\n" {
			t.Errorf("the process is %q (%v)", name, err)
		}
		p.expect(0, abi.AppStop, "web")
		p.expect(0, abi.AppRm, "web")
		a.ends(t, 137)
		must(t, a.group.Remove(p.patience))
	}
}

func TestAppStopEndsCreatedAndRunningApps(t *testing.T) {
	p := startPod(t)
	created := p.app("created", nil, "sleep", "1000").add()
	running := p.app("running", nil, "sh", "-c", "trap '' TERM; sleep 1000").start()
	for name, q := range map[string]*process{"created": created.process, "running": running.process} {
		p.expect(0, abi.AppStop, name)
		p.expect(0, abi.AppRm, name) // at once: it is as good as dead
		q.ends(t, 137)
	}
}

// Scripts could not send signals as well as stage 0 does if there is no entrypoint:
// it uses a pidfd, so it cannot signal another process, and it knows which apps were
// not started yet.
func TestSignalsAreLeftToStage0(t *testing.T) {
	if startPod(t).Has(abi.AppSignal) {
		t.Error("there is an entrypoint app/signal")
	}
}

func TestABlockedAppHoldsItsStdioAndWhatItWaitsFor(t *testing.T) {
	p := startPod(t)
	in, _ := pipe(t)
	_, out := pipe(t)
	p.app("other", nil, "sleep", "1000").add(in, out, out)
	a := p.app("web", nil, "sleep", "1000").add(in, out)
	held := map[string]int{}
	for _, to := range descriptors(t, a.PID) {
		held[to]++
	}
	stdio := []string{link(t, os.Getpid(), int(in.Fd())), link(t, os.Getpid(), int(out.Fd())), os.DevNull}
	for fd, to := range descriptors(t, a.PID) {
		switch {
		case fd < 3 && to == stdio[fd]:
		case fd < 3:
			t.Errorf("descriptor %d is %s, want %s", fd, to, stdio[fd])
		case strings.HasSuffix(to, "/exec.fifo"):
			// the fifo by which the process is released
		case strings.HasPrefix(to, "anon_inode:"), strings.HasPrefix(to, "pipe:") && held[to] == 2:
			// those of the process's Go runtime, which has both ends of a pipe
		default:
			t.Errorf("descriptor %d is %s", fd, to)
		}
	}
}

func link(t *testing.T, pid, fd int) string {
	t.Helper()
	to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
	must(t, err)
	return to
}

func descriptors(t *testing.T, pid int) map[int]string {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	must(t, err)
	found := map[int]string{}
	for _, e := range entries {
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err == nil {
			found[fd] = link(t, pid, fd)
		}
	}
	return found
}

func TestAppsAndExecsAreInTheAppsCgroupWhoseLimitsStay(t *testing.T) {
	p := startPod(t)
	limit, period, quota := int64(64<<20), uint64(100000), int64(50000)
	var allowed = specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: ptr(int64(10)), Minor: ptr(int64(229)), Access: "rw"}
	a := p.app("web", func(s *specs.Spec) {
		s.Linux.Resources = &specs.LinuxResources{
			Memory:  &specs.LinuxMemory{Limit: &limit},
			CPU:     &specs.LinuxCPU{Period: &period, Quota: &quota},
			Devices: []specs.LinuxDeviceCgroup{{Access: "rwm"}, allowed},
		}
	}, "sleep", "1000")
	before := settings(t, a)
	a.start()
	exec := a.enter("e", nil, nil, "sleep", "1000")
	want := []int{a.PID, exec.PID}
	slices.Sort(want)
	for _, dir := range a.group.ABI().Dirs {
		if got := pids(t, dir); !slices.Equal(got, want) {
			t.Errorf("%s holds %v, want %v", dir, got, want)
		}
	}
	after := settings(t, a)
	for file, value := range before {
		if after[file] != value {
			t.Errorf("%s is\n%s after app/add; it was\n%s", file, after[file], value)
		}
	}
	must(t, a.group.Kill(p.patience))
	exec.ends(t, 137)
	a.ends(t, 137)
}

func ptr[T any](v T) *T { return &v }

// settings reads what the limits of the cgroup are, where this machine has them.
func settings(t *testing.T, a *testApp) map[string]string {
	t.Helper()
	found := map[string]string{}
	for controller, files := range map[string][]string{
		"memory": {"memory.limit_in_bytes", "memory.max"}, "cpu": {"cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.max"}, "devices": {"devices.list"},
	} {
		for _, f := range files {
			if b, err := os.ReadFile(filepath.Join(a.group.Dir(controller), f)); err == nil {
				lines := strings.Split(string(b), "\n")
				slices.Sort(lines)
				found[f] = strings.Join(lines, "\n")
			}
		}
	}
	if len(found) == 0 {
		t.Skip("no limits to look at")
	}
	return found
}

func pids(t *testing.T, dir string) []int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	must(t, err)
	var found []int
	for f := range strings.FieldsSeq(string(b)) {
		var pid int
		_, err := fmt.Sscan(f, &pid)
		must(t, err)
		found = append(found, pid)
	}
	slices.Sort(found)
	return found
}

func TestSIGTERMIsAnOrderlyStop(t *testing.T) {
	p := startPod(t)
	created := p.app("created", nil, "sleep", "1000").add()
	running := p.app("running", nil, "sleep", "1000").start()
	must(t, p.sup.Signal(syscall.SIGTERM))
	created.ends(t, 137)
	running.ends(t, 137)
	p.over()
	if left := p.apps(); len(left) > 0 {
		t.Errorf("state of %v is left", left)
	}
}

func TestStopEndsAllApps(t *testing.T) {
	p := startPod(t)
	created := p.app("created", nil, "sleep", "1000").add()
	running := p.app("running", nil, "sleep", "1000").start()
	p.expect(0, abi.Stop, "")
	created.ends(t, 137)
	running.ends(t, 137)
	p.over()
}

func TestStopByForceEndsASupervisorThatHangs(t *testing.T) {
	p := startPod(t)
	must(t, p.sup.Signal(syscall.SIGSTOP))
	c := p.call(abi.Stop, "")
	must(t, p.Invoke(p.patience, c))
	c.Force = true
	must(t, p.Invoke(p.patience, c))
	p.over()
}

func TestTheSupervisorHoldsTheLockAndIgnoresHangups(t *testing.T) {
	p := startPod(t)
	a := p.app("web", nil, "sleep", "1000").start()
	lock, err := os.Open(p.dir)
	must(t, err)
	defer lock.Close()
	must(t, p.sup.Signal(syscall.SIGHUP))
	must(t, p.sup.Signal(syscall.SIGPIPE))
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		t.Error("the lock of a pod that runs is free")
	}
	must(t, p.sup.Kill())
	p.over()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Errorf("the lock of a pod whose supervisor was killed: %v; which process has it?", err)
	}
	if n, err := p.sup.Notices.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("notices go on: %d, %v", n, err)
	}
	// Stage 0 kills the app. gc removes what the runtime has made.
	must(t, a.group.Kill(p.patience))
	a.ends(t, 137)
	must(t, a.group.Remove(p.patience))
	p.expect(0, abi.GC, "")
	if left, _ := filepath.Glob("/sys/fs/cgroup/*" + a.group.Path()); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestGCOfAPodThatNeverRanAndOfAnotherBoot(t *testing.T) {
	p := newPod(t, "")
	p.expect(0, abi.GC, "")
	p.run()
	a := p.app("web", nil, "sleep", "1000").add()
	boot := filepath.Join(p.dir, stateDir, "boot")
	now, err := os.ReadFile(boot)
	must(t, err)
	must(t, os.WriteFile(boot, []byte("00000000-0000-4000-8000-000000000000\n"), 0o644))
	p.expect(0, abi.GC, "")
	if !proc.Alive(a.PID, a.StartTime) {
		t.Error("gc of another boot has killed a process of this one")
	}
	must(t, os.WriteFile(boot, now, 0o644))
	p.expect(0, abi.GC, "")
	a.ends(t, 137)
}

func TestAnAddThatIsKilledHalfWayIsCleanedUp(t *testing.T) {
	for _, e := range []abi.Entrypoint{abi.AppRm, abi.Stop} {
		t.Run(string(e), func(t *testing.T) {
			p := startPod(t)
			reached := filepath.Join(t.TempDir(), "reached")
			a := p.app("web", func(s *specs.Spec) {
				s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "touch " + reached + "; exec sleep 1000"}}}}
			}, "sleep", "1000")
			ctx, cancel := context.WithCancel(p.patience)
			go func() {
				defer cancel()
				wait.Until(t, "the hook runs", func() bool { _, err := os.Stat(reached); return err == nil })
			}()
			if err := a.tryAdd(ctx); !errors.Is(err, context.Canceled) {
				t.Fatalf("error %v", err)
			}
			// A process that the runtime has started may not be in the call's process
			// group.
			must(t, a.group.Kill(p.patience))
			app := "web"
			if e == abi.Stop {
				app = ""
			}
			p.expect(0, e, app)
			if left := p.apps(); len(left) > 0 {
				t.Errorf("state of %v is left", left)
			}
		})
	}
}

// before runs a line of shell before every later call of the runtime.
func before(t *testing.T, line string) (program string) {
	t.Helper()
	real, err := exec.LookPath("runc")
	must(t, err)
	program = filepath.Join(t.TempDir(), "runc")
	must(t, os.WriteFile(program, []byte("#!/bin/sh\n"+line+"\nexec "+real+" \"$@\"\n"), 0o755))
	t.Setenv("PATH", filepath.Dir(program)+":"+os.Getenv("PATH"))
	return program
}

func TestTheRuntimeHoldsNoneOfTheABIsDescriptors(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	before(t, `for verb; do case $verb in create|start|exec|delete) break; esac; done
		for fd in /proc/$$/fd/[3-9]; do ! [ -e "$fd" ] || echo "$verb holds $(readlink "$fd") as ${fd##*/}" >>`+log+`; done
		echo "$verb" >>`+log)
	p := startPod(t)
	a := p.app("web", nil, "sleep", "1000").start()
	exec := a.enter("e", nil, nil, "sleep", "1000")
	must(t, p.sup.Signal(syscall.SIGTERM)) // whose handling has the lock and the notice pipe at hand
	p.over()
	a.ends(t, 137)
	exec.ends(t, 137)
	b, err := os.ReadFile(log)
	if err != nil || string(b) != "create\nstart\nexec\ndelete\n" {
		t.Errorf("%s (%v)", b, err)
	}
}

func TestThePodMayBeRenamedUnderTheRuntime(t *testing.T) {
	p := startPod(t)
	a := p.app("web", nil, "sleep", "1000").start()
	moved := p.dir + ".moved"
	slow := before(t, `while [ -d '`+p.dir+`' ]; do sleep 0.01; done`)
	done := make(chan error)
	go func() { done <- p.Invoke(p.patience, p.call(abi.Stop, "")) }()
	wait.Until(t, "stop has come to the runtime", func() bool { return len(processesWith(slow)) > 0 })
	must(t, os.Rename(p.dir, moved))
	must(t, <-done)
	if _, err := os.Stat(p.dir); err == nil {
		t.Errorf("%s has been made anew", p.dir)
	}
	p.dir = moved
	a.ends(t, 137)
	p.over()
}
