package seccomp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// The profiles of this test allow all calls that runc needs to make a container.
func TestVerdictsAreThoseOfTheFilterThatRuncLoads(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make containers and look at their filters")
	}
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("runc is not installed")
	}
	r := newReference(t, local())
	for _, name := range []string{
		"containerd-no-caps", "containerd-default-caps", "containerd-all-caps",
		"docker-default-caps", "docker-all-caps", "deny-list",
	} {
		t.Run(name, func(t *testing.T) {
			s := r.known(profiles(t)[name])
			s.Flags = nil // runc 1.1 knows none; they are no part of the program
			theirs := runcFilter(t, s)
			if err := check(theirs); err != nil {
				t.Fatalf("runc's program: %v", err)
			}
			ours, _, err := Compile(s)
			if err != nil {
				t.Fatal(err)
			}
			agree(t, r, s, ours, theirs, func(d *seccompData) uint32 {
				verdict, _ := simulate(theirs, d)
				return verdict
			})
			t.Logf("%d instructions, runc %d", len(ours), len(theirs))
		})
	}
}

// runcFilter creates a container with runc and returns the filter that is loaded
// in it. Nothing is started: without noNewPrivileges runc loads the filter
// before it waits to be told to start.
func runcFilter(t *testing.T, s *specs.LinuxSeccomp) []unix.SockFilter {
	t.Helper()
	bundle := t.TempDir()
	writeBundle(t, bundle, s)
	id := fmt.Sprintf("seccomp-test-%d-%d", os.Getpid(), time.Now().UnixNano())
	t.Cleanup(func() {
		if out, err := runc(bundle, "delete", "--force", id); err != nil {
			t.Errorf("runc delete: %v: %s", err, out)
		}
	})
	if out, err := runc(bundle, "create", "--bundle", bundle, id); err != nil {
		t.Skipf("runc makes no container here: %v: %s", err, out)
	}
	out, err := runc(bundle, "state", id)
	if err != nil {
		t.Fatalf("runc state: %v: %s", err, out)
	}
	var state specs.State
	if err := json.Unmarshal(out, &state); err != nil {
		t.Fatal(err)
	}
	prog, err := loadedFilter(state.Pid)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EIO) || errors.Is(err, unix.EPERM) {
		t.Skipf("the kernel does not show filters here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return prog
}

func writeBundle(t *testing.T, bundle string, s *specs.LinuxSeccomp) {
	t.Helper()
	config, err := json.Marshal(&specs.Spec{
		Version: "1.0.2",
		Process: &specs.Process{Args: []string{"/program"}, Cwd: "/", Capabilities: &specs.LinuxCapabilities{}},
		Root:    &specs.Root{Path: "rootfs"},
		Mounts:  []specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc"}},
		Linux: &specs.Linux{Seccomp: s, Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(bundle, "rootfs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "rootfs", "program"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o644); err != nil {
		t.Fatal(err)
	}
}

// runc returns what a runc command writes. It writes to a file, because the
// container keeps its end of a pipe.
func runc(bundle string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	path := filepath.Join(bundle, "output")
	output, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	cmd := exec.CommandContext(ctx, "runc", append([]string{"--root", filepath.Join(bundle, "state")}, args...)...)
	cmd.Stdout, cmd.Stderr = output, output
	err = cmd.Run()
	text, readErr := os.ReadFile(path)
	return bytes.TrimSpace(text), errors.Join(err, readErr)
}

// loadedFilter returns the filter that a process loaded last.
func loadedFilter(pid int) ([]unix.SockFilter, error) {
	runtime.LockOSThread() // ptrace knows threads, not processes
	defer runtime.UnlockOSThread()
	if err := ptrace(unix.PTRACE_SEIZE, pid, nil); err != nil {
		return nil, err
	}
	if err := ptrace(unix.PTRACE_INTERRUPT, pid, nil); err != nil {
		return nil, err
	}
	if _, err := unix.Wait4(pid, nil, unix.WALL, nil); err != nil {
		return nil, os.NewSyscallError("wait4", err)
	}
	prog := make([]unix.SockFilter, unix.BPF_MAXINSNS)
	n, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SECCOMP_GET_FILTER, uintptr(pid), 0, uintptr(unsafe.Pointer(&prog[0])), 0, 0)
	err := ptrace(unix.PTRACE_DETACH, pid, nil)
	if errno != 0 {
		return nil, os.NewSyscallError("ptrace", errno)
	}
	return prog[:n], err
}

func ptrace(request, pid int, data unsafe.Pointer) error {
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(pid), 0, uintptr(data), 0, 0); errno != 0 {
		return os.NewSyscallError("ptrace", errno)
	}
	return nil
}
