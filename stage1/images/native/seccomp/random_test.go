package seccomp

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// The tests of this file make the same profiles each time. This makes other ones, and more:
//
//	RKT_TEST_SECCOMP_SEED=7 RKT_TEST_SECCOMP_PROFILES=100000 go test -run Random -timeout 1h

// environment reads a number that may be set for longer runs.
func environment(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// recipe describes from what random profiles are made.
type recipe struct {
	operators   []string
	actions     []specs.LinuxSeccompAction
	maxArgs     int  // in one rule, arguments named twice included
	onlyRule    bool // of its system call, and no argument named twice
	sameArg     bool // in all conditions of a rule, which makes each a rule
	smallValues bool // compare with values of 32 bits only
}

// profile makes a profile whose rules use few system calls and few values, so that
// the rules often overlap, in every way.
func (k recipe) profile(random *rand.Rand) *specs.LinuxSeccomp {
	s := &specs.LinuxSeccomp{
		DefaultAction: specs.ActErrno,
		Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32},
	}
	names := []string{"read", "write", "socket", "shmget", "ioctl"}
	values := []uint64{0, 1, 2, 3, 40, 1 << 32, 1<<32 | 1, 2<<32 | 3}
	if k.smallValues {
		values = []uint64{0, 1, 2, 3, 40, 41, 1<<31 - 1, 1<<32 - 1}
	}
	pick := func() uint64 { return values[random.IntN(len(values))] }
	for range 1 + random.IntN(8) {
		name := names[random.IntN(len(names))]
		if k.onlyRule {
			if len(names) == 1 {
				break
			}
			names = slices.DeleteFunc(names, func(other string) bool { return other == name })
		}
		group := specs.LinuxSyscall{Names: []string{name}, Action: k.actions[random.IntN(len(k.actions))]}
		indices := random.Perm(3)
		for i := range random.IntN(k.maxArgs + 1) {
			switch {
			case k.sameArg:
				indices[i] = indices[0]
			case !k.onlyRule:
				indices[i] = random.IntN(3)
			}
			group.Args = append(group.Args, specs.LinuxSeccompArg{
				Index: uint(indices[i]), Value: pick(), ValueTwo: pick(),
				Op: specs.LinuxSeccompOperator(k.operators[random.IntN(len(k.operators))]),
			})
		}
		s.Syscalls = append(s.Syscalls, group)
	}
	return s
}

// calls returns the calls that recipes use, on every architecture and through every
// multiplexer.
func calls() []seccompData {
	return []seccompData{
		{number: 0, arch: unix.AUDIT_ARCH_X86_64}, {number: 1, arch: unix.AUDIT_ARCH_X86_64},
		{number: 41, arch: unix.AUDIT_ARCH_X86_64}, {number: 29, arch: unix.AUDIT_ARCH_X86_64},
		{number: 16, arch: unix.AUDIT_ARCH_X86_64}, {number: 1<<30 | 514, arch: unix.AUDIT_ARCH_X86_64},
		{number: 3, arch: unix.AUDIT_ARCH_I386}, {number: 102, arch: unix.AUDIT_ARCH_I386},
		{number: 117, arch: unix.AUDIT_ARCH_I386}, {number: 359, arch: unix.AUDIT_ARCH_I386},
	}
}

// compare runs a program over the calls of recipes.
func compare(t *testing.T, s *specs.LinuxSeccomp, prog []unix.SockFilter, want func(*seccompData) uint32) {
	t.Helper()
	args := interestingArgs(s)
	for _, where := range calls() {
		for _, a := range args {
			data := where
			data.args = a
			if got, _ := simulate(prog, &data); got != want(&data) {
				t.Fatalf("%s\narch %#x, number %#x, arguments %#x: verdict %#x, want %#x",
					text(s), data.arch, data.number, a, got, want(&data))
			}
		}
	}
}

func text(s *specs.LinuxSeccomp) string {
	b, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// libseccomp compiles the profiles of these recipes correctly, with few exceptions,
// which are left out (mixesWords). The recipes leave out profiles that have several
// rules for one call if one of these has an inequality or a bound beside other
// conditions. TestEveryRuleMeansWhatItSays has all kinds of profiles.
func TestRandomRulesAgreeWithLibseccomp(t *testing.T) {
	allow := []specs.LinuxSeccompAction{specs.ActAllow}
	various := []specs.LinuxSeccompAction{specs.ActAllow, specs.ActAllow, specs.ActLog, specs.ActTrap, specs.ActErrno}
	equality := []string{"SCMP_CMP_EQ", "SCMP_CMP_MASKED_EQ"}
	r := newReference(t, local())
	seed, profiles := environment(t, "RKT_TEST_SECCOMP_SEED", 3), environment(t, "RKT_TEST_SECCOMP_PROFILES", 400)
	for _, c := range []struct {
		name   string
		recipe recipe
	}{
		{"equality", recipe{operators: equality, actions: various, maxArgs: 3}},
		{"one condition", recipe{operators: Operators(), actions: allow, maxArgs: 1}},
		{"several conditions on one argument", recipe{operators: Operators(), actions: allow, maxArgs: 3, sameArg: true, smallValues: true}},
		{"one rule", recipe{operators: Operators(), actions: various, maxArgs: 3, onlyRule: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			mixed, refused := uint64(0), uint64(0)
			for i := range profiles {
				s := c.recipe.profile(rand.New(rand.NewPCG(seed, i)))
				theirs, err := r.compile(t, s)
				ours, _, own := compile(local(), s, false)
				switch {
				case errors.Is(err, errEndless):
					t.Fatalf("%s\n%v", text(s), err)
				case (err == nil) != (own == nil):
					t.Fatalf("%s\nrefused: %v, by libseccomp: %v", text(s), own, err)
				case err != nil:
					refused++
				case mixesWords(theirs):
					mixed++
				default:
					compare(t, s, ours, func(d *seccompData) uint32 {
						verdict, _ := simulate(theirs, d)
						return verdict
					})
				}
			}
			t.Logf("seed %d: %d profiles, %d refused by both, %d mixed up by libseccomp", seed, profiles, refused, mixed)
			if mixed > profiles/10 || refused > profiles/3 {
				t.Error("too few of them compared")
			}
		})
	}
}

func TestRandomRulesMeanWhatTheySay(t *testing.T) {
	if len(local().architectures) != 3 {
		t.Skip("the system calls of this test are amd64's")
	}
	seed, profiles := environment(t, "RKT_TEST_SECCOMP_SEED", 5), environment(t, "RKT_TEST_SECCOMP_PROFILES", 500)
	t.Logf("seed %d, %d profiles", seed, profiles)
	all := recipe{operators: Operators(), actions: []specs.LinuxSeccompAction{specs.ActAllow}, maxArgs: 3}
	for i := range profiles {
		s := all.profile(rand.New(rand.NewPCG(seed, i)))
		prog, _, err := compile(local(), s, false)
		if err != nil {
			t.Fatalf("%s\n%v", text(s), err)
		}
		compare(t, s, prog, func(d *seccompData) uint32 { return meaning(s, d) })
	}
}

// meaning evaluates a random profile as the runtime spec defines its meaning. It uses
// no code of the compiler.
func meaning(s *specs.LinuxSeccomp, d *seccompData) uint32 {
	wide := d.arch == unix.AUDIT_ARCH_X86_64 && d.number < 1<<30
	for _, group := range s.Syscalls {
		through, ok := reaches(group.Names[0], d)
		if !ok {
			continue
		}
		for _, args := range referenceArgs(group.Args) {
			holds := true
			for _, arg := range args {
				holds = holds && (through && arg.Index == 0 || satisfied(arg, d.args[arg.Index], wide))
			}
			if holds {
				return unix.SECCOMP_RET_ALLOW
			}
		}
	}
	return unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
}

// reaches reports whether d is the named call. through is set if d is a call of a
// multiplexer, whose first argument selects the call, so that a rule cannot test it.
func reaches(name string, d *seccompData) (through, ok bool) {
	if d.arch == unix.AUDIT_ARCH_I386 {
		switch d.number {
		case 102:
			return true, name == "socket" && uint32(d.args[0]) == 1
		case 117:
			return true, name == "shmget" && uint32(d.args[0]) == 23
		}
		return false, d.number == map[string]uint32{"read": 3, "write": 4, "socket": 359, "shmget": 395, "ioctl": 54}[name]
	}
	if d.number >= 1<<30 {
		return false, d.number&^(1<<30) == map[string]uint32{"read": 0, "write": 1, "socket": 41, "shmget": 29, "ioctl": 514}[name]
	}
	return false, slices.Contains([]string{"read", "write", "socket", "shmget", "ioctl"}, name) &&
		d.number == map[string]uint32{"read": 0, "write": 1, "socket": 41, "shmget": 29, "ioctl": 16}[name]
}

func satisfied(arg specs.LinuxSeccompArg, value uint64, wide bool) bool {
	want, two := arg.Value, arg.ValueTwo
	if !wide {
		value, want, two = uint64(uint32(value)), uint64(uint32(want)), uint64(uint32(two))
	}
	switch arg.Op {
	case specs.OpNotEqual:
		return value != want
	case specs.OpLessThan:
		return value < want
	case specs.OpLessEqual:
		return value <= want
	case specs.OpEqualTo:
		return value == want
	case specs.OpGreaterEqual:
		return value >= want
	case specs.OpGreaterThan:
		return value > want
	}
	return value&want == two&want
}
