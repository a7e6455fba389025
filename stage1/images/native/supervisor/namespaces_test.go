package supervisor

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

func TestAnExecJoinsTheNamespacesThatTheAppDoesNotShareWithTheSupervisor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	another := exec.CommandContext(t.Context(), "sleep", "1000")
	another.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS}
	if err := another.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = another.Process.Kill(); _ = another.Wait() })
	of := func(pid any, kind string) string { return fmt.Sprintf("/proc/%v/ns/%s", pid, kind) }
	linux := &specs.Linux{Namespaces: []specs.LinuxNamespace{
		{Type: specs.MountNamespace},
		{Type: specs.PIDNamespace},
		{Type: specs.CgroupNamespace},
		{Type: specs.NetworkNamespace, Path: of("self", "net")},
		{Type: specs.IPCNamespace, Path: of(another.Process.Pid, "ipc")},
		{Type: specs.UTSNamespace, Path: of(another.Process.Pid, "uts")},
	}}
	p := &fork.Process{}
	err := enlist(p, linux)
	defer func() { closeJoins(p.Joins) }()
	if err != nil {
		t.Fatal(err)
	}
	flags, err := apart(p, linux)
	const want = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWCGROUP | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	if err != nil || flags != want {
		t.Errorf("it joins %#x, want %#x (%v)", flags, want, err)
	}
}
