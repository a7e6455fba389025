package seccomp

import (
	"errors"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// libseccomp 2.5.4 compiles some profiles wrongly, and this package must not. Each
// profile below is the smallest that shows a fault of libseccomp.
func TestWhatLibseccompGetsWrongIsRightHere(t *testing.T) {
	const x86_64, i386 = unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_I386
	arg := func(index uint, op specs.LinuxSeccompOperator, value uint64) specs.LinuxSeccompArg {
		return specs.LinuxSeccompArg{Index: index, Op: op, Value: value}
	}
	allow := func(name string, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
		return specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: args}
	}
	r := newReference(t, local())
	for _, c := range []struct {
		name  string
		rules []specs.LinuxSyscall
		call  seccompData
		want  uint32
		fault string
	}{
		{
			"the second rule looks at the argument of the first",
			[]specs.LinuxSyscall{
				allow("ioctl", arg(1, specs.OpEqualTo, 3), specs.LinuxSeccompArg{Index: 2, Op: specs.OpMaskedEqual, Value: 1 << 32, ValueTwo: 1 << 32}),
				allow("ioctl", arg(1, specs.OpEqualTo, 0)),
			},
			seccompData{16, x86_64, [6]uint64{3, 3, 3}}, denied, "allowed",
		},
		{
			"bounds on both sides of 4 GiB look at each other's words",
			[]specs.LinuxSyscall{allow("read", arg(2, specs.OpLessEqual, 0)), allow("read", arg(2, specs.OpLessEqual, 2<<32|3))},
			seccompData{0, x86_64, [6]uint64{2: 3}}, unix.SECCOMP_RET_ALLOW, "refused",
		},
		{
			"a rule is dropped for one with the opposite condition",
			[]specs.LinuxSyscall{
				allow("ioctl", arg(2, specs.OpNotEqual, 1)),
				allow("ioctl", arg(1, specs.OpNotEqual, 1), arg(2, specs.OpEqualTo, 1)),
			},
			seccompData{1<<30 | 514, x86_64, [6]uint64{1, 3, 1}}, unix.SECCOMP_RET_ALLOW, "refused",
		},
		{
			"half of a bound is dropped for a stricter one",
			[]specs.LinuxSyscall{
				allow("ioctl", arg(0, specs.OpGreaterThan, 3)),
				allow("ioctl", arg(0, specs.OpGreaterThan, 1), arg(1, specs.OpGreaterThan, 40)),
			},
			seccompData{16, x86_64, [6]uint64{2, 41}}, unix.SECCOMP_RET_ALLOW, "refused",
		},
		{
			"the rules become a ring",
			[]specs.LinuxSyscall{
				allow("write", arg(1, specs.OpEqualTo, 3), arg(0, specs.OpNotEqual, 1)),
				allow("write", arg(0, specs.OpNotEqual, 1), arg(2, specs.OpNotEqual, 1<<32)),
			},
			seccompData{4, i386, [6]uint64{0, 3, 0}}, unix.SECCOMP_RET_ALLOW, "no end",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &specs.LinuxSeccomp{
				DefaultAction: specs.ActErrno, Syscalls: c.rules,
				Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32},
			}
			ours, _, err := compile(local(), s, false)
			if err != nil {
				t.Fatal(err)
			}
			if meant := meaning(s, &c.call); meant != c.want {
				t.Errorf("the profile means %#x, want %#x", meant, c.want)
			}
			if got, _ := simulate(ours, &c.call); got != c.want {
				t.Errorf("verdict %#x, want %#x", got, c.want)
			}
			if got := verdictOf(t, r, s, &c.call); got != c.fault {
				// Another version of libseccomp may have other faults, which is no
				// failure of this package.
				t.Logf("libseccomp here: %s; 2.5.4: %s", got, c.fault)
			}
		})
	}
}

// denied is the verdict of SCMP_ACT_ERRNO without errnoRet.
const denied = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)

func verdictOf(t *testing.T, r *reference, s *specs.LinuxSeccomp, data *seccompData) string {
	theirs, err := r.compile(t, s)
	if errors.Is(err, errEndless) {
		return "no end"
	}
	if err != nil {
		t.Fatal(err)
	}
	if verdict, _ := simulate(theirs, data); verdict == unix.SECCOMP_RET_ALLOW {
		return "allowed"
	}
	return "refused"
}
