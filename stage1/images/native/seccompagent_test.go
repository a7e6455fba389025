package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// agent is a seccomp agent: it answers the calls of the processes whose listeners it gets.
type agent struct {
	t      *testing.T
	path   string
	answer func(notified) (value int64, errno unix.Errno, proceed bool)
	states chan specs.ContainerProcessState
	calls  chan notified
}

// notified is struct seccomp_notif, and answer struct seccomp_notif_resp.
type (
	notified struct {
		ID         uint64
		PID, Flags uint32
		Number     int32
		Arch       uint32
		IP         uint64
		Args       [6]uint64
	}
	answered struct {
		ID           uint64
		Value        int64
		Error, Flags int32
	}
)

// startAgent starts an agent. Without an answer, it takes listeners and never answers.
func startAgent(t *testing.T, answer func(notified) (int64, unix.Errno, bool)) *agent {
	t.Helper()
	a := &agent{t: t, path: filepath.Join(t.TempDir(), "agent.sock"), answer: answer,
		states: make(chan specs.ContainerProcessState, 8), calls: make(chan notified, 64)}
	l, err := net.Listen("unix", a.path)
	must(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			a.take(c.(*net.UnixConn))
		}
	}()
	t.Cleanup(func() { l.Close(); <-served })
	return a
}

// take reads all of a connection, which has one state and one listener.
func (a *agent) take(c *net.UnixConn) {
	defer c.Close()
	buf, rights := make([]byte, 1<<20), make([]byte, 128)
	n, m, _, _, err := c.ReadMsgUnix(buf, rights)
	if err != nil {
		a.t.Errorf("a connection without a state: %v", err)
		return
	}
	rest, err := io.ReadAll(c) // the other end has closed it
	var s specs.ContainerProcessState
	if err := json.Unmarshal(append(buf[:n], rest...), &s); err != nil {
		a.t.Errorf("state %q: %v", buf[:n], err)
	}
	messages, _ := unix.ParseSocketControlMessage(rights[:m])
	var fds []int
	for _, m := range messages {
		more, _ := unix.ParseUnixRights(&m)
		fds = append(fds, more...)
	}
	if len(fds) != 1 || err != nil {
		a.t.Errorf("%d descriptors, %v", len(fds), err)
		return
	}
	a.states <- s
	a.t.Cleanup(func() { unix.Close(fds[0]) })
	if a.answer != nil {
		go a.serve(fds[0])
	}
}

// serve answers the calls of one listener until its processes have ended.
func (a *agent) serve(fd int) {
	for {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 100); err == unix.EINTR || n == 0 && err == nil {
			continue
		} else if err != nil || poll[0].Revents&unix.POLLIN == 0 {
			return
		}
		var call notified
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&call))); e != 0 {
			continue
		}
		value, errno, proceed := a.answer(call)
		resp := answered{ID: call.ID, Value: value, Error: -int32(errno)}
		if proceed {
			resp = answered{ID: call.ID, Flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&resp)))
		select {
		case a.calls <- call:
		default:
		}
	}
}

// notifies asks for an agent that answers these calls.
func (a *agent) notifies(calls ...string) func(*specs.Spec) {
	return func(s *specs.Spec) {
		s.Annotations = map[string]string{"test.colour": "blue"}
		s.Linux.Seccomp = &specs.LinuxSeccomp{
			DefaultAction: specs.ActAllow, ListenerPath: a.path, ListenerMetadata: "some words",
			Flags:    []specs.LinuxSeccompFlag{specs.LinuxSeccompFlagWaitKillableRecv},
			Syscalls: []specs.LinuxSyscall{{Names: calls, Action: specs.ActNotify}},
		}
	}
}

func TestASeccompAgentAnswersTheCallsOfAppsAndExecs(t *testing.T) {
	for _, noNewPrivileges := range []bool{false, true} { // the filter is loaded with other rights
		t.Run(fmt.Sprintf("noNewPrivileges %t", noNewPrivileges), func(t *testing.T) { answersAppsAndExecs(t, noNewPrivileges) })
	}
}

func answersAppsAndExecs(t *testing.T, noNewPrivileges bool) {
	// The agent pretends that the first directory was made, and refuses the second one.
	var made atomic.Int32
	a := startAgent(t, func(notified) (int64, unix.Errno, bool) {
		if made.Add(1)%2 == 1 {
			return 0, 0, false
		}
		return 0, unix.EDQUOT, false
	})
	const script = "mkdir /tmp/x && echo made; ls /tmp; mkdir /tmp/y || echo refused; ls /proc/self/fd | tr '\n' ' '"
	const want = "made\nmkdir: can't create directory '/tmp/y': Disk quota exceeded\nrefused\n0 1 2 3 "
	p := startPod(t)
	r := p.request("web", "sh", "-c", "exec 2>&1; "+script+"; exec sleep 1000")
	respec(t, &r, a.notifies("mkdir"))
	respec(t, &r, func(s *specs.Spec) { s.Process.NoNewPrivileges = noNewPrivileges })
	out, stdout := pipe(t)
	pid := p.add(r, nil, stdout)
	p.expect(0, abi.AppStart, "web")
	state := wait.For(t, "the state of the app", a.states)
	if state.Pid != pid || state.State.Pid != pid || state.Metadata != "some words" || len(state.Fds) != 1 || state.Fds[0] != "seccompFd" ||
		state.State.ID != "ctr-web" || state.State.Status != specs.StateCreated || state.State.Annotations["test.colour"] != "blue" || state.State.Bundle == "" {
		t.Errorf("the agent got %+v", state)
	}
	expectOutput(t, out, want)

	out, stdout = pipe(t)
	e := p.enter("web", "e", [3]*os.File{nil, stdout}, "sh", "-c", "exec 2>&1; "+script)
	if e.code != 0 {
		t.Fatalf("enter: %d %s", e.code, e.text)
	}
	state = wait.For(t, "the state of the exec", a.states)
	if state.Pid != e.ready.PID || state.State.Pid != pid || state.State.Status != specs.StateRunning {
		t.Errorf("the agent got %+v of exec %d of app %d", state, e.ready.PID, pid)
	}
	expectOutput(t, out, want)
}

func expectOutput(t *testing.T, out *os.File, want string) {
	t.Helper()
	buf := make([]byte, len(want))
	n, err := io.ReadFull(out, buf)
	if err != nil || string(buf[:n]) != want {
		t.Errorf("%q (%v), want %q", buf[:n], err, want)
	}
}

func TestTheAgentMayAnswerEveryCallOnTheWayToTheProgram(t *testing.T) {
	a := startAgent(t, func(notified) (int64, unix.Errno, bool) { return 0, 0, true })
	p := startPod(t)
	r := p.request("web", "true")
	respec(t, &r, a.notifies("read", "capset", "execve", "sendmsg", "close", "futex"))
	p.add(r)
	p.expect(0, abi.AppStart, "web")
	p.exited("web", "", 0, 0)
	numbers := map[int32]bool{}
	// The agent notes a call after its answer, so the program may have ended before.
	wait.Observe(t, "the agent was asked for read and execve", func() (bool, string) {
		for len(a.calls) > 0 {
			numbers[(<-a.calls).Number] = true
		}
		return numbers[unix.SYS_READ] && numbers[unix.SYS_EXECVE], fmt.Sprint(numbers)
	})
}

func TestWithoutAnAgentNothingStarts(t *testing.T) {
	dead := filepath.Join(t.TempDir(), "dead.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	must(t, err)
	l.SetUnlinkOnClose(false)
	l.Close()
	full := filepath.Join(t.TempDir(), "full.sock")
	fillQueue(t, full)
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for name, c := range map[string]struct {
		path string
		call abi.Entrypoint // that fails
		want string
	}{
		"no socket":               {"/absent.sock", abi.AppAdd, "stat /absent.sock: no such file or directory"},
		"a relative path":         {"agent.sock", abi.AppAdd, `"agent.sock" is not an absolute path`},
		"a file":                  {file, abi.AppAdd, "is not a socket"},
		"an agent that has ended": {dead, abi.AppStart, "connection refused"},
		"an agent that hangs":     {full, abi.AppStart, "resource temporarily unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			p := startPod(t)
			r := p.request("web", "sleep", "1000")
			respec(t, &r, (&agent{path: c.path}).notifies("mkdir"))
			began := time.Now()
			a := p.call(abi.AppAdd, entrypoint{request: r})
			if c.call == abi.AppStart && a.code == 0 {
				a = p.do(abi.AppStart, "web")
				p.notice() // of an exit: the process has ended, by itself or killed
			}
			if a.code == 0 || !strings.Contains(a.text, "linux.seccomp.listenerPath") || !strings.Contains(a.text, c.want) {
				t.Errorf("%s: code %d, %s", c.call, a.code, a.text)
			}
			if took := time.Since(began); took > wait.Patience {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// fillQueue makes a socket at path whose owner accepts no connection, with a full queue.
func fillQueue(t *testing.T, path string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	must(t, unix.Listen(fd, 0))
	for range 8 {
		c, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		must(t, err)
		t.Cleanup(func() { unix.Close(c) })
		if unix.Connect(c, &unix.SockaddrUnix{Name: path}) == unix.EAGAIN {
			return
		}
	}
	t.Fatal("the queue is never full")
}

// If an agent takes the listener and never answers, only the program waits. The start, signals
// and the end of the pod do not wait.
func TestAnAgentThatNeverAnswersHoldsUpOnlyTheProgram(t *testing.T) {
	a := startAgent(t, nil)
	p := startPod(t)
	r := p.request("web", "sh", "-c", "mkdir /tmp/x; sleep 1000")
	respec(t, &r, a.notifies("mkdir"))
	p.add(r)
	p.expect(0, abi.AppStart, "web")
	wait.For(t, "the state of the app", a.states)
	other := p.request("other", "true")
	p.add(other)
	p.expect(0, abi.AppStart, "other")
	p.exited("other", "", 0, 0)
	p.expect(0, abi.AppStop, "web")
	p.exited("web", "", 137, 9)
}

// The state has the annotations, of which a client may send four megabytes.
func TestALongStateArrivesWhole(t *testing.T) {
	a := startAgent(t, func(notified) (int64, unix.Errno, bool) { return 0, 0, true })
	p := startPod(t)
	r := p.request("web", "true")
	respec(t, &r, a.notifies("mkdir"))
	long := strings.Repeat("x", 3<<20)
	respec(t, &r, func(s *specs.Spec) { s.Annotations["long"] = long })
	p.add(r)
	p.expect(0, abi.AppStart, "web")
	if s := wait.For(t, "the state of the app", a.states); s.State.Annotations["long"] != long {
		t.Errorf("%d bytes arrived", len(s.State.Annotations["long"]))
	}
	p.exited("web", "", 0, 0)
}
