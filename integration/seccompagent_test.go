package integration

import (
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// refuseCalls is a seccomp agent that refuses the first call of every listener that it gets.
func refuseCalls(t *testing.T, path string, errno unix.Errno) <-chan specs.ContainerProcessState {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	states := make(chan specs.ContainerProcessState, 4)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, listener := receiveListener(t, c.(*net.UnixConn))
			states <- s
			go refuseCall(listener, errno)
		}
	}()
	return states
}

func receiveListener(t *testing.T, c *net.UnixConn) (s specs.ContainerProcessState, listener int) {
	defer c.Close()
	buf, rights := make([]byte, 64<<10), make([]byte, 128)
	n, m, _, _, err := c.ReadMsgUnix(buf, rights)
	if err == nil {
		err = json.Unmarshal(buf[:n], &s)
	}
	messages, _ := unix.ParseSocketControlMessage(rights[:m])
	if err != nil || len(messages) != 1 {
		t.Errorf("the agent got %q, %d messages of descriptors, %v", buf[:n], len(messages), err)
		return s, -1
	}
	fds, _ := unix.ParseUnixRights(&messages[0])
	return s, fds[0]
}

// refuseCall answers one call of a struct seccomp_notif with a struct seccomp_notif_resp.
func refuseCall(listener int, errno unix.Errno) {
	defer unix.Close(listener)
	var call [80]byte
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&call))); e != 0 {
		return
	}
	answer := struct {
		id     [8]byte
		value  int64
		errno  int32
		unused uint32
	}{id: [8]byte(call[:8]), errno: -int32(errno)}
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&answer)))
}

func TestASeccompAgentAnswersTheCallsOfContainersAndExecs(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		path := filepath.Join(t.TempDir(), "agent.sock")
		states := refuseCalls(t, path, unix.EDQUOT)
		asks := func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
			s.Linux.Seccomp = &specs.LinuxSeccomp{
				DefaultAction: specs.ActAllow, ListenerPath: path, ListenerMetadata: "some words",
				Syscalls: []specs.LinuxSyscall{{Names: []string{"mkdir", "mkdirat"}, Action: specs.ActNotify}},
			}
			return nil
		}
		refused := func(kind string, pid, first int, id string) {
			t.Helper()
			s := wait.For(t, "the state of the "+kind, states)
			if s.Pid != pid || s.State.Pid != first || s.State.ID != id || s.Metadata != "some words" || !slices.Equal(s.Fds, []string{"seccompFd"}) {
				t.Errorf("the agent got of the %s: %+v", kind, s)
			}
		}
		const script = "mkdir /tmp/x 2>&1 | grep -q 'quota exceeded' && exec sleep 1000"
		task := c.running(t, []string{"sh", "-c", script}, asks)
		refused("container", int(task.Pid()), int(task.Pid()), task.ID())
		ctx := c.context(t)
		exec, err := task.Exec(ctx, "e", process(t, ctx, task, "sh", "-c", "mkdir /tmp/x 2>&1 | grep -q 'quota exceeded'"), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		exited := c.wait(t, exec)
		if err := exec.Start(ctx); err != nil {
			t.Fatal(err)
		}
		refused("exec", int(exec.Pid()), int(task.Pid()), task.ID())
		expectExit(t, exited, 0)
	})
}
