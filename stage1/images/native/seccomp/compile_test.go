package seccomp

import (
	"errors"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func ptr(n uint) *uint { return &n }

func TestAProfileThatCannotBeHonouredIsRefusedByName(t *testing.T) {
	rule := func(group specs.LinuxSyscall) *specs.LinuxSeccomp {
		return &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{group}}
	}
	eq := func(arg uint, value uint64) []specs.LinuxSeccompArg {
		return []specs.LinuxSeccompArg{{Index: arg, Value: value, Op: specs.OpEqualTo}}
	}
	names := []string{"read"}
	for _, c := range []struct {
		name        string
		profile     *specs.LinuxSeccomp
		text        string
		unsupported bool
	}{
		{"default action", &specs.LinuxSeccomp{DefaultAction: "SCMP_ACT_BLOCK"}, `linux.seccomp.defaultAction: "SCMP_ACT_BLOCK"`, false},
		{"no default action", &specs.LinuxSeccomp{Syscalls: []specs.LinuxSyscall{{Names: names}}}, "linux.seccomp.defaultAction", false},
		{"notify by default", &specs.LinuxSeccomp{DefaultAction: specs.ActNotify}, "SCMP_ACT_NOTIFY", true},
		{"notify without an agent", rule(specs.LinuxSyscall{Names: names, Action: specs.ActNotify}), "linux.seccomp.listenerPath", false},
		{"notify of write", rule(specs.LinuxSyscall{Names: []string{"mkdir", "write"}, Action: specs.ActNotify}), "linux.seccomp.syscalls[0]", true},
		{"errno of notify", &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, ListenerPath: "/run/x", Syscalls: []specs.LinuxSyscall{
			{Names: names, Action: specs.ActNotify, ErrnoRet: ptr(1)}}}, "SCMP_ACT_NOTIFY has no errnoRet", false},
		{"metadata without an agent", &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, ListenerMetadata: "x"}, "linux.seccomp.listenerMetadata", false},
		{"action", rule(specs.LinuxSyscall{Names: names, Action: "ALLOW"}), `linux.seccomp.syscalls[0]: "ALLOW" is not an action`, false},
		{"errno of an action without one", rule(specs.LinuxSyscall{Names: names, Action: specs.ActKill, ErrnoRet: ptr(1)}), "SCMP_ACT_KILL has no errnoRet", false},
		{"default errno of an action without one", &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, DefaultErrnoRet: ptr(1)}, "SCMP_ACT_ALLOW has no errnoRet", false},
		{"errno", rule(specs.LinuxSyscall{Names: names, Action: specs.ActErrno, ErrnoRet: ptr(4095)}), "errnoRet 4095", false},
		{"trace code", rule(specs.LinuxSyscall{Names: names, Action: specs.ActTrace, ErrnoRet: ptr(1 << 16)}), "errnoRet 65536", false},
		{"architecture", &specs.LinuxSeccomp{DefaultAction: specs.ActKill, Architectures: []specs.Arch{"amd64"}}, `linux.seccomp.architectures: "amd64"`, false},
		{"flag", &specs.LinuxSeccomp{DefaultAction: specs.ActKill, Flags: []specs.LinuxSeccompFlag{"LOG"}}, `linux.seccomp.flags: "LOG"`, false},
		{"empty name", rule(specs.LinuxSyscall{Names: []string{""}, Action: specs.ActAllow}), "empty name", false},
		{"index", rule(specs.LinuxSyscall{Names: names, Action: specs.ActAllow, Args: eq(6, 0)}), "argument index 6", false},
		{"operator", rule(specs.LinuxSyscall{Names: names, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{{Op: "=="}}}), `"==" is not an operator`, false},
		{"contradiction", &specs.LinuxSeccomp{DefaultAction: specs.ActKill, Syscalls: []specs.LinuxSyscall{
			{Names: names, Action: specs.ActAllow, Args: eq(0, 1)}, {Names: names, Action: specs.ActLog, Args: eq(0, 1)},
		}}, "linux.seccomp.syscalls[1]: read", false},
		{"less particular contradiction", &specs.LinuxSeccomp{DefaultAction: specs.ActKill, Syscalls: []specs.LinuxSyscall{
			{Names: names, Action: specs.ActAllow, Args: append(eq(0, 1), eq(1, 2)...)}, {Names: names, Action: specs.ActLog, Args: eq(0, 1)},
		}}, "linux.seccomp.syscalls[1]: read", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			prog, _, err := Compile(c.profile)
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("error %v, want one with %q", err, c.text)
			}
			if errors.Is(err, errors.ErrUnsupported) != c.unsupported {
				t.Errorf("%v: is ErrUnsupported: %v", err, !c.unsupported)
			}
			if prog != nil {
				t.Error("a program beside the error")
			}
		})
	}
}

func TestNoProfileMeansNoProgram(t *testing.T) {
	for _, s := range []*specs.LinuxSeccomp{nil, {}, {Architectures: []specs.Arch{specs.ArchX86}}} {
		if prog, flags, err := Compile(s); prog != nil || flags != 0 || err != nil {
			t.Errorf("%+v: %v, %d, %v", s, prog, flags, err)
		}
	}
}

func TestFlagsAreTheKernels(t *testing.T) {
	for _, c := range []struct {
		flags []specs.LinuxSeccompFlag
		want  uint
	}{
		{nil, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW},
		{[]specs.LinuxSeccompFlag{}, 0},
		{[]specs.LinuxSeccompFlag{flagTSync, specs.LinuxSeccompFlagLog}, unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_LOG},
		{[]specs.LinuxSeccompFlag{specs.LinuxSeccompFlagSpecAllow}, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW},
		{[]specs.LinuxSeccompFlag{specs.LinuxSeccompFlagWaitKillableRecv}, 0},
	} {
		_, got, err := Compile(&specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Flags: c.flags})
		if err != nil || got != c.want {
			t.Errorf("%q: %#x, %v; want %#x", c.flags, got, err, c.want)
		}
	}
}

func TestTheSameProfileGivesTheSameProgram(t *testing.T) {
	for name, s := range profiles(t) {
		first, _, err := Compile(s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for range 20 {
			if again, _, _ := Compile(s); !slices.Equal(first, again) {
				t.Fatalf("%s: another program", name)
			}
		}
	}
}

func TestTheUsualProfileCostsFewInstructionsPerCall(t *testing.T) {
	s := profiles(t)["containerd-default-caps"]
	prog, _, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.Lines(table) {
		name, _, _ = strings.Cut(name, " ")
		native := local().architectures[0]
		number, ok := native.number(local().lookup(name))
		if !ok || slices.ContainsFunc(s.Syscalls, func(g specs.LinuxSyscall) bool {
			return len(g.Args) > 0 && slices.Contains(g.Names, name)
		}) {
			continue
		}
		if _, steps := simulate(prog, &seccompData{number: number, arch: native.audit}); steps > 16 {
			t.Errorf("%s costs %d instructions", name, steps)
		}
	}
}

// If a profile has a rule for each of many values, some jumps are longer than a
// conditional jump can be. With still more values the program has more instructions
// than the kernel accepts.
func TestLongProgramsJumpFarUntilTheKernelsLimit(t *testing.T) {
	profile := func(values uint64) *specs.LinuxSeccomp {
		s := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{
			{Names: []string{"getpid", "sync", "exit"}, Action: specs.ActAllow},
			{Names: []string{"getuid"}, Action: specs.ActLog},
		}}
		for v := range values {
			for i, name := range []string{"fcntl", "prctl", "futex"} {
				s.Syscalls = append(s.Syscalls, specs.LinuxSyscall{
					Names: []string{name}, Action: []specs.LinuxSeccompAction{specs.ActAllow, specs.ActLog, specs.ActTrap}[i],
					Args: []specs.LinuxSeccompArg{{Index: 1, Value: v << 32, Op: specs.OpEqualTo}},
				})
			}
		}
		return s
	}
	prog, _, err := Compile(profile(300))
	if err != nil {
		t.Fatal(err)
	}
	if err := check(prog); err != nil {
		t.Fatal(err)
	}
	native := local().architectures[0]
	for i, name := range []string{"fcntl", "prctl", "futex"} {
		number, _ := native.number(local().lookup(name))
		for v := range uint64(301) {
			want := []uint32{unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_LOG, unix.SECCOMP_RET_TRAP}[i]
			if v == 300 {
				want = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
			}
			got, _ := simulate(prog, &seccompData{number: number, arch: native.audit, args: [6]uint64{1: v << 32}})
			if got != want {
				t.Fatalf("%s(%d<<32): %#x, want %#x", name, v, got, want)
			}
		}
	}
	if prog, _, err := Compile(profile(2000)); err == nil || !strings.Contains(err.Error(), "instructions") {
		t.Errorf("%d instructions, %v", len(prog), err)
	}
}

func BenchmarkCompile(b *testing.B) {
	s := profiles(b)["containerd-default-caps"]
	for b.Loop() {
		if _, _, err := Compile(s); err != nil {
			b.Fatal(err)
		}
	}
}
