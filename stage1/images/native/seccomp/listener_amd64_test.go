package seccomp

import (
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestOnlyACallThatWaitsForAnAgentNeedsAListener(t *testing.T) {
	killable := []specs.LinuxSeccompFlag{specs.LinuxSeccompFlagWaitKillableRecv}
	profile := func(a specs.LinuxSeccompAction, flags []specs.LinuxSeccompFlag) *specs.LinuxSeccomp {
		return &specs.LinuxSeccomp{
			DefaultAction: specs.ActAllow, ListenerPath: "/run/agent.sock", ListenerMetadata: "words", Flags: flags,
			Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchX86},
			Syscalls:      []specs.LinuxSyscall{{Names: []string{"mkdir"}, Action: a}},
		}
	}
	for _, c := range []struct {
		action specs.LinuxSeccompAction
		flags  []specs.LinuxSeccompFlag
		want   uint
	}{
		{specs.ActNotify, nil, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW},
		{specs.ActNotify, killable, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV},
		{specs.ActErrno, nil, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW},
		{specs.ActErrno, killable, 0},
	} {
		if _, flags, err := compile(local(), profile(c.action, c.flags), true); err != nil || flags != c.want {
			t.Errorf("%s with %v: flags %#x (%v), want %#x", c.action, c.flags, flags, err, c.want)
		}
	}
	prog, _, err := compile(local(), profile(specs.ActNotify, nil), true)
	if err != nil {
		t.Fatal(err)
	}
	for number, want := range map[uint32]uint32{83: unix.SECCOMP_RET_USER_NOTIF, 84: unix.SECCOMP_RET_ALLOW} {
		if got, _ := simulate(prog, &seccompData{number, unix.AUDIT_ARCH_X86_64, [6]uint64{}}); got != want {
			t.Errorf("call %d: %#x, want %#x", number, got, want)
		}
	}
}
