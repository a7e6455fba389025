package seccomp

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestEveryNumberThatLibseccompKnowsIsTheSameHere(t *testing.T) {
	for _, m := range []machine{local(), arm64(t)} {
		r := newReference(t, m)
		for name, numbers := range r.table {
			got := m.lookup(name)
			for _, a := range m.architectures {
				want, has := numbers[a.name]
				n, ok := a.number(got)
				if has && (!ok || n != want) {
					t.Errorf("%s on %s is %d, %v; want %d", name, a.name, n, ok, want)
				}
				if !has && ok {
					t.Errorf("%s on %s is %d; libseccomp knows the name and has no such call", name, a.name, n)
				}
			}
		}
	}
}

func TestVerdictsAreLibseccomps(t *testing.T) {
	r := newReference(t, local())
	for name, s := range profiles(t) {
		t.Run(name, func(t *testing.T) { agreeWithLibseccomp(t, r, r.known(s)) })
	}
}

// The verdicts of a program for arm64 are the same wherever it is compiled.
func TestVerdictsForArm64AreLibseccomps(t *testing.T) {
	r := newReference(t, arm64(t))
	for name, s := range profiles(t) {
		s = r.known(s)
		if len(s.Architectures) > 0 {
			s.Architectures = []specs.Arch{specs.ArchARM, specs.ArchAARCH64}
		}
		t.Run(name, func(t *testing.T) { agreeWithLibseccomp(t, r, s) })
	}
}

// agreeWithLibseccomp compares a profile's program with libseccomp's, and then
// with the program that runc loads: runc's answer to newer calls, followed by libseccomp's.
func agreeWithLibseccomp(t *testing.T, r *reference, s *specs.LinuxSeccomp) {
	theirs, err := r.compile(t, s)
	if err != nil {
		t.Fatal(err)
	}
	for _, enosys := range []bool{false, true} {
		ours, _, err := compile(r.machine, s, enosys)
		if err != nil {
			t.Fatal(err)
		}
		if err := check(ours); err != nil {
			t.Fatal(err)
		}
		newer := r.enosys(s)
		agree(t, r, s, ours, theirs, func(d *seccompData) uint32 {
			if enosys && newer(d) {
				return unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
			}
			verdict, _ := simulate(theirs, d)
			return verdict
		})
		t.Logf("%d instructions, libseccomp %d", len(ours), len(theirs))
	}
}

// agree compares the verdicts of two programs for many arguments and for all numbers
// that matter: those of system calls, and those next to which a verdict may change.
func agree(t *testing.T, r *reference, s *specs.LinuxSeccomp, ours, theirs []unix.SockFilter, want func(*seccompData) uint32) {
	t.Helper()
	numbers := interestingNumbers(ours, theirs)
	all, some := interestingArgs(s), [][6]uint64{{}, {1, 2, 3, 4, 5, 6}}
	conditional := conditionalNumbers(r, s)
	for _, arch := range []uint32{unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, unix.AUDIT_ARCH_AARCH64, 0} {
		for _, number := range numbers {
			args := some
			if conditional[number] {
				args = all
			}
			for _, a := range args {
				data := &seccompData{number, arch, a}
				verdict, _ := simulate(ours, data)
				if expected := want(data); verdict != expected {
					t.Fatalf("arch %#x, number %d (%#x), arguments %#x: verdict %#x, want %#x", arch, number, number, a, verdict, expected)
				}
			}
		}
	}
}

// conditionalNumbers returns the numbers, on all architectures, of the calls whose
// arguments the profile tests, and of the multiplexers.
func conditionalNumbers(r *reference, s *specs.LinuxSeccomp) map[uint32]bool {
	numbers := map[uint32]bool{102: true, 117: true}
	for _, group := range s.Syscalls {
		for _, name := range group.Names {
			for _, n := range r.table[name] {
				numbers[n] = numbers[n] || len(group.Args) > 0
			}
		}
	}
	return numbers
}

// interestingNumbers returns all numbers that some architecture uses, and those
// around each constant that a program compares with. Between two successive numbers
// of these no verdict changes.
func interestingNumbers(programs ...[]unix.SockFilter) []uint32 {
	numbers := make(map[uint32]bool)
	for n := range uint32(600) {
		numbers[n], numbers[n|1<<30] = true, true
	}
	near := func(n uint32) { numbers[n-1], numbers[n], numbers[n+1] = true, true, true }
	for _, n := range []uint32{1 << 30, 1 << 31, 3 << 30, 0xf0001, 0xf0005, ^uint32(0), ^uint32(100), ^uint32(200)} {
		near(n)
	}
	for _, i := range slices.Concat(programs...) {
		if i.Code&unix.BPF_JMP == unix.BPF_JMP && i.Code != unix.BPF_JMP|unix.BPF_JA {
			near(i.K)
		}
	}
	return slices.Sorted(maps.Keys(numbers))
}

// interestingArgs returns sets of arguments that have the values with which the
// profile compares, and values near these: sets in which all arguments are equal,
// and shuffled ones.
func interestingArgs(s *specs.LinuxSeccomp) [][6]uint64 {
	values := map[uint64]bool{0: true, 1: true, 1<<32 - 1: true, 1 << 32: true, ^uint64(0): true}
	for _, group := range s.Syscalls {
		for _, arg := range group.Args {
			for _, v := range []uint64{arg.Value, arg.ValueTwo, arg.Value & arg.ValueTwo, arg.Value | arg.ValueTwo} {
				for _, w := range []uint64{v, v - 1, v + 1, ^v, v ^ 1<<32, v ^ 1<<63, v & 0xffffffff, v >> 32 << 32} {
					values[w] = true
				}
			}
		}
	}
	sorted := slices.Sorted(maps.Keys(values))
	var args [][6]uint64
	for _, v := range sorted {
		args = append(args, [6]uint64{v, v, v, v, v, v})
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2 * len(sorted) {
		var a [6]uint64
		for i := range a {
			a[i] = sorted[random.IntN(len(sorted))]
		}
		args = append(args, a)
	}
	// What the multiplexers of x86 select by their first argument.
	for n := range uint64(26) {
		args = append(args, [6]uint64{n, sorted[random.IntN(len(sorted))], sorted[random.IntN(len(sorted))]})
	}
	return args
}

func profiles(t testing.TB) map[string]*specs.LinuxSeccomp {
	t.Helper()
	paths, err := filepath.Glob("testdata/profiles/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no profiles: %v", err)
	}
	read := make(map[string]*specs.LinuxSeccomp)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s := new(specs.LinuxSeccomp)
		if err := json.Unmarshal(text, s); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		read[strings.TrimSuffix(filepath.Base(path), ".json")] = s
	}
	return read
}
