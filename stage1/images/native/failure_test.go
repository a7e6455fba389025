package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/client"
)

// refused calls app/add, which must fail, leave nothing and announce nothing.
func (p *pod) refused(code int, text string, r abi.Request) {
	p.t.Helper()
	a := p.call(abi.AppAdd, entrypoint{request: r})
	if a.code != code || !strings.Contains(a.text, text) {
		p.t.Errorf("exit code %d, text %q, want %d and %q", a.code, a.text, code, text)
	}
	if a.ready.PID != 0 {
		p.t.Errorf("it was ready: %+v", a.ready)
	}
	p.empty()
}

// empty checks that the supervisor has no child and has sent no notice. It waits for
// the first, because a process that a killed hook has started is the supervisor's
// child until it is reaped.
func (p *pod) empty() {
	p.t.Helper()
	wait.Until(p.t, "the supervisor has no children", func() bool { return len(children(p.t, p.ready.PID)) == 0 })
	select {
	case n := <-p.notices:
		p.t.Errorf("notice %q", n)
	default:
	}
}

func children(t *testing.T, pid int) []string {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	must(t, err)
	var pids []string
	for _, f := range files {
		b, _ := os.ReadFile(f) // a thread may end
		pids = append(pids, strings.Fields(string(b))...)
	}
	return pids
}

func TestWhatCannotBeMadeIsRefusedAndLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		code   int
		text   string
		change func(*specs.Spec)
	}{
		"a missing program": {1, "executable file not found in $PATH", func(s *specs.Spec) {
			s.Process.Args = []string{"absent"}
		}},
		"a missing path": {1, "no such file or directory", func(s *specs.Spec) {
			s.Process.Args = []string{"/absent"}
		}},
		"a directory": {1, "is a directory", func(s *specs.Spec) {
			s.Process.Args = []string{"/bin"}
		}},
		"a namespace of an unknown type": {7, `linux.namespaces`, func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: "place"})
		}},
		"a clock that cannot be set": {7, `linux.timeOffsets`, func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.TimeNamespace})
			s.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{"realtime": {Secs: 1}}
		}},
		"a clock before its beginning": {1, `setting the clocks of its time namespace`, func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.TimeNamespace})
			s.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{"boottime": {Secs: -1 << 40}}
		}},
		"a namespace listed twice": {1, `linux.namespaces`, func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.PIDNamespace})
		}},
		"the host's mount namespace": {7, "mounts: not supported without a mount namespace", func(s *specs.Spec) {
			s.Linux.Namespaces = s.Linux.Namespaces[1:]
		}},
		"the host's mount namespace by its path": {7, "linux.namespaces", func(s *specs.Spec) {
			s.Linux.Namespaces[0].Path = fmt.Sprintf("/proc/%d/ns/mnt", os.Getpid())
		}},
		"a namespace that is gone": {1, "opening network namespace /absent: no such file or directory", func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: "/absent"})
		}},
		"a namespace of another type": {1, "joining network namespace /proc/self/ns/uts: it is not a network namespace", func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: "/proc/self/ns/uts"})
		}},
		"no namespace at all": {1, "it is not a network namespace", func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: "/dev/null"})
		}},
		"a user namespace without maps": {1, "linux.uidMappings", func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
		}},
		"maps without a user namespace": {1, "user namespace", func(s *specs.Spec) {
			s.Linux.UIDMappings = []specs.LinuxIDMapping{{HostID: 1000, Size: 1}}
		}},
		"a failing hook": {1, "createRuntime hook 1 (/bin/busybox): exit status 9: it said why", func(s *specs.Spec) {
			s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{
				{Path: busybox, Args: []string{"true"}},
				{Path: busybox, Args: []string{"sh", "-c", "echo it said why >&2; exit 9"}},
			}}
		}},
		"a missing hook": {1, "prestart hook 0 (/absent): executing /absent: no such file or directory", func(s *specs.Spec) {
			s.Hooks = &specs.Hooks{Prestart: []specs.Hook{{Path: "/absent"}}}
		}},
		"a hook that hangs": {1, "createRuntime hook 0 (/bin/busybox): timed out after 1s", func(s *specs.Spec) {
			second := 1
			s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{
				{Path: busybox, Args: []string{"sh", "-c", "busybox sleep 1000; true"}, Env: []string{"PATH=/bin"}, Timeout: &second},
			}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := startPod(t)
			r := p.request("web", "true")
			respec(t, &r, c.change)
			p.refused(c.code, c.text, r)
			p.expect(abi.ExitNotFound, abi.AppStart, "web")
			p.expect(0, abi.AppRm, "web")
		})
	}
}

func TestAFailedExecLeavesNothing(t *testing.T) {
	p := startPod(t)
	p.add(p.request("web", "sleep", "1000"))
	p.expect(0, abi.AppStart, "web")
	for range 2 { // the id is free again
		a := p.enter("web", "e", [3]*os.File{}, "absent")
		if a.code != 1 || !strings.Contains(a.text, "executable file not found in $PATH") || a.ready.PID != 0 {
			t.Errorf("exit code %d, text %q, ready %+v", a.code, a.text, a.ready)
		}
	}
	if pids := children(t, p.ready.PID); len(pids) != 1 {
		t.Errorf("the supervisor has children %v, want the app", pids)
	}
	p.signal(0, "web", "", syscall.SIGKILL)
	p.exited("web", "", 137, 9) // the next notice: none of the exec
}

func TestACallerThatIsKilledHalfWayLeavesNothing(t *testing.T) {
	p := startPod(t)
	r := p.request("web", "true")
	marker := filepath.Join(p.dir, "hook")
	respec(t, &r, func(s *specs.Spec) {
		s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{
			{Path: busybox, Args: []string{"sh", "-c", "echo $$ >" + marker + "; busybox sleep 1000; true"}, Env: []string{"PATH=/bin"}},
		}}
	})
	ctx, kill := context.WithCancel(context.Background())
	go func() {
		defer kill()
		for {
			if b, _ := os.ReadFile(marker); len(b) > 0 || t.Context().Err() != nil {
				return
			}
		}
	}()
	if a := p.call(abi.AppAdd, entrypoint{request: r, ctx: ctx}); a.code != -1 {
		t.Fatalf("the caller was not killed: %d %s", a.code, a.text)
	}
	p.expect(0, abi.AppRm, "web") // waits for the undoing
	p.empty()
	b, err := os.ReadFile(marker)
	must(t, err)
	hook, err := strconv.Atoi(strings.TrimSpace(string(b)))
	must(t, err)
	if alive(hook) {
		t.Errorf("the hook, process %d, lives", hook)
	}
}

func TestASilentCallerAndASlowHookHoldNobodyUp(t *testing.T) {
	p := startPod(t)
	silent, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(silent)
	must(t, unix.Connect(silent, &unix.SockaddrUnix{Name: filepath.Join(p.dir, client.Socket)}))
	r := p.request("slow", "true")
	fifo := filepath.Join(p.dir, "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	respec(t, &r, func(s *specs.Spec) {
		s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: busybox, Args: []string{"cat", fifo}}}}
	})
	done := make(chan answer, 1)
	go func() { done <- p.call(abi.AppAdd, entrypoint{request: r}) }()
	p.add(p.request("fast", "true"))
	p.expect(0, abi.AppStart, "fast")
	p.exited("fast", "", 0, 0)
	must(t, os.WriteFile(fifo, nil, 0)) // the hook reads end of file
	if a := <-done; a.code != 0 {
		t.Errorf("the slow app: exit code %d (%s)", a.code, a.text)
	}
}

func TestAppsDieBlockedWithTheirSupervisor(t *testing.T) {
	p := startPod(t)
	pid := p.add(p.request("web", "sleep", "1000"))
	must(t, p.run.Process.Kill())
	p.over()
	wait.Until(t, "the end of the app", func() bool { return !alive(pid) })
	for range p.notices {
		t.Error("a notice came")
	}
	a := p.expect(abi.ExitNotFound, abi.AppStart, "web")
	if !strings.Contains(a.text, "the pod's supervisor has gone") {
		t.Errorf("text %q", a.text)
	}
	for _, e := range []abi.Entrypoint{abi.AppStop, abi.AppRm, abi.Stop, abi.GC, abi.GC} {
		p.expect(0, e, "web")
	}
}

func TestStopRecordsWhatItEnds(t *testing.T) {
	for name, stop := range map[string]func(*pod){
		"stop":    func(p *pod) { p.expect(0, abi.Stop, "") },
		"SIGTERM": func(p *pod) { must(p.t, p.run.Process.Signal(syscall.SIGTERM)) },
	} {
		t.Run(name, func(t *testing.T) {
			p := startPod(t)
			p.add(p.request("added", "sleep", "1000"))
			p.add(p.request("running", "sleep", "1000"))
			p.expect(0, abi.AppStart, "running")
			if a := p.enter("running", "e", [3]*os.File{}, "sleep", "1000"); a.code != 0 {
				t.Fatalf("enter: %d %s", a.code, a.text)
			}
			stop(p)
			p.over()
			notices := map[string]bool{}
			for n := range p.notices {
				notices[n] = true
			}
			for _, who := range [][2]string{{"added", ""}, {"running", ""}, {"running", "e"}} {
				if !notices[strings.TrimSpace("exit "+who[0]+" "+who[1])] {
					t.Errorf("no notice of %v in %v", who, notices)
				}
				s, err := abi.ReadStatus(filepath.Join(p.dir, abi.StatusDir), who[0], who[1])
				if err != nil || s.Code != 137 {
					t.Errorf("%v: recorded %+v, %v", who, s, err)
				}
			}
			if code := p.run.ProcessState.ExitCode(); code != 0 {
				t.Errorf("run ended with %d", code)
			}
		})
	}
}

func TestAForcedStopWaitsForNobody(t *testing.T) {
	p := startPod(t)
	pid := p.add(p.request("web", "sleep", "1000"))
	a := p.call(abi.Stop, entrypoint{args: []string{"--force", podID}})
	if a.code != 0 {
		t.Errorf("exit code %d (%s)", a.code, a.text)
	}
	p.over()
	wait.Until(t, "the end of the app", func() bool { return !alive(pid) })
}

func TestAppStopEndsAnAppInAnyState(t *testing.T) {
	p := startPod(t)
	for _, started := range []bool{false, true} {
		app := fmt.Sprintf("app-%v", started)
		p.add(p.request(app, "sh", "-c", "trap '' TERM; sleep 1000"))
		if started {
			p.expect(0, abi.AppStart, app)
		}
		p.expect(0, abi.AppStop, app)
		p.exited(app, "", 137, 9)
		p.expect(0, abi.AppRm, app)
	}
	p.empty()
}

func TestTheLockIsHeldBySupervisorsOnly(t *testing.T) {
	p := startPod(t)
	app := p.add(p.request("web", "sleep", "1000"))
	p.expect(0, abi.AppStart, "web")
	if fd := "/proc/" + strconv.Itoa(p.ready.PID) + "/fd/5"; link(fd) != p.dir {
		t.Errorf("%s is %s, want the pod directory", fd, link(fd))
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", app))
	must(t, err)
	if len(fds) != 3 {
		t.Errorf("the app holds %d descriptors, want 3", len(fds))
	}
	for fd := range 3 {
		if target := link(fmt.Sprintf("/proc/%d/fd/%d", p.ready.PID, fd)); fd == 0 && target != "/dev/null" || strings.HasPrefix(target, "pipe:") {
			t.Errorf("descriptor %d of the supervisor is %s", fd, target)
		}
	}
}

func link(path string) string {
	target, _ := os.Readlink(path)
	return target
}

func TestTheSupervisorKeepsNothingOfAnAppThatIsRemoved(t *testing.T) {
	p := startPod(t)
	dir := fmt.Sprintf("/proc/%d/fd", p.ready.PID)
	cycle := func(app string) {
		r, w := pipe(t)
		p.add(p.request(app, "true"), nil, w, w)
		w.Close()
		p.enter(app, "e", [3]*os.File{}, "true")
		p.exited(app, "e", 0, 0)
		p.enter(app, "f", [3]*os.File{}, "absent")
		p.expect(0, abi.AppStart, app)
		p.exited(app, "", 0, 0)
		if _, err := io.ReadAll(r); err != nil {
			t.Error(err)
		}
		p.expect(0, abi.AppRm, app)
	}
	cycle("first")
	before, err := os.ReadDir(dir)
	must(t, err)
	for i := range 5 {
		cycle(fmt.Sprintf("app%d", i))
	}
	// The supervisor closes the connection of a call after it has answered.
	wait.Observe(t, "the supervisor has as many descriptors as after the first app", func() (bool, string) {
		after, err := os.ReadDir(dir)
		must(t, err)
		return len(after) <= len(before), fmt.Sprintf("%d, %d after the first app", len(after), len(before))
	})
	p.empty()
}

func TestOrphansOfAppsInTheHostsPIDNamespaceAreReaped(t *testing.T) {
	p := startPod(t)
	r := p.request("web", "sh", "-c", "(sleep 0.1 & sleep 0.1 &); exec sleep 1000")
	respec(t, &r, func(s *specs.Spec) {
		s.Linux.Namespaces = []specs.LinuxNamespace{{Type: specs.MountNamespace}}
		s.Mounts = nil
	})
	p.add(r)
	p.expect(0, abi.AppStart, "web")
	wait.Until(t, "the end of the orphans", func() bool { return len(children(t, p.ready.PID)) == 1 })
	p.expect(0, abi.AppStop, "web")
	p.exited("web", "", 137, 9)
}
