package seccomp

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// TestTheKernelGivesTheVerdicts installs programs and makes system calls.
func TestTheKernelGivesTheVerdicts(t *testing.T) {
	path := helper(t, "kernel.c")
	with := func(groups ...specs.LinuxSyscall) []specs.LinuxSyscall {
		// The helper needs these calls for its report. getpid, getuid and
		// getgid are the calls that the tests try.
		return append(groups, specs.LinuxSyscall{Names: []string{"write", "exit_group"}, Action: specs.ActAllow})
	}
	allArches := []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32}
	for _, c := range []struct {
		name    string
		profile *specs.LinuxSeccomp
		calls   map[string]string
	}{
		{"allow list", &specs.LinuxSeccomp{
			DefaultAction: specs.ActErrno, Architectures: allArches,
			Syscalls: with(specs.LinuxSyscall{Names: []string{"getuid", "clone3"}, Action: specs.ActAllow}),
		}, map[string]string{
			"x86_64:102": "returned 0", "x86_64:104": "returned -1", "x86_64:500": "returned -38",
			"x86:24": "returned 0", "x86:47": "returned -1", "x86:500": "returned -38", "x32:104": "returned -1",
		}},
		{"only the native architecture", &specs.LinuxSeccomp{
			DefaultAction: specs.ActErrno, DefaultErrnoRet: ptr(13),
			Syscalls: with(specs.LinuxSyscall{Names: []string{"getuid", "clone3"}, Action: specs.ActAllow}),
		}, map[string]string{
			"x86_64:102": "returned 0", "x86_64:104": "returned -13", "x86:24": "signal 31", "x32:102": "signal 31",
		}},
		{"actions", &specs.LinuxSeccomp{
			DefaultAction: specs.ActAllow, Architectures: allArches,
			Flags: []specs.LinuxSeccompFlag{flagTSync, specs.LinuxSeccompFlagLog, specs.LinuxSeccompFlagWaitKillableRecv},
			Syscalls: []specs.LinuxSyscall{
				{Names: []string{"getuid"}, Action: specs.ActKillProcess},
				{Names: []string{"getgid"}, Action: specs.ActTrap},
				{Names: []string{"geteuid"}, Action: specs.ActErrno, ErrnoRet: ptr(77)},
				{Names: []string{"getegid"}, Action: specs.ActTrace}, // without a tracer: ENOSYS
				{Names: []string{"getppid"}, Action: specs.ActLog},
				{Names: []string{"sched_get_priority_max"}, Action: specs.ActErrno, Args: []specs.LinuxSeccompArg{{Value: 1 << 32, Op: specs.OpGreaterEqual}}},
			},
		}, map[string]string{
			"x86_64:102": "signal 31", "x86_64:104": "signal 31", "x86_64:107": "returned -77", "x86_64:108": "returned -38",
			"x86:24": "signal 31", "x86:49": "returned -77", "x86_64:146:4294967296": "returned -1", "x86_64:146:0": "returned 0",
		}},
		{"kill by default", &specs.LinuxSeccomp{DefaultAction: specs.ActKillProcess, Syscalls: with()}, map[string]string{
			"x86_64:102": "signal 31", "x86_64:500": "returned -38",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			prog, flags, err := Compile(c.profile)
			if err != nil {
				t.Fatal(err)
			}
			for call, want := range c.calls {
				if got := inKernel(t, path, prog, flags, call); got != want {
					t.Errorf("%s: %s, want %s", call, got, want)
				}
			}
		})
	}
}

func TestTheKernelTakesEveryProgram(t *testing.T) {
	path := helper(t, "kernel.c")
	for name, s := range profiles(t) {
		t.Run(name, func(t *testing.T) {
			prog, flags, err := Compile(s)
			if err != nil {
				t.Fatal(err)
			}
			// The result of the call does not matter, because many of the
			// profiles kill the helper before it can report.
			if inKernel(t, path, prog, flags, "x86_64:500") == "" {
				t.Error("no verdict")
			}
		})
	}
}

// inKernel loads a program in the kernel, by a helper, and returns what the helper
// reports about one call. An alarm ends the helper's child, even if the filter
// forbids it to exit.
func inKernel(t *testing.T, path string, prog []unix.SockFilter, flags uint, call string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, fmt.Sprint(flags), call)
	cmd.WaitDelay = time.Second
	cmd.Stdin = bytes.NewReader(encode(t, prog))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", call, err, out)
	}
	return strings.TrimSpace(string(out))
}

func encode(t *testing.T, prog []unix.SockFilter) []byte {
	t.Helper()
	b, err := binary.Append(nil, binary.NativeEndian, prog)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
