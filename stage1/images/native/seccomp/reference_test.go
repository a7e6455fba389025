package seccomp

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// helper compiles a C program of testdata.
func helper(t testing.TB, source string, libs ...string) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the profiles and helpers of this test are for amd64")
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("cc is not installed")
	}
	path := filepath.Join(t.TempDir(), "helper")
	args := append([]string{"-O1", "-o", path, filepath.Join("testdata", source)}, libs...)
	out, err := exec.Command(cc, args...).CombinedOutput()
	if err != nil && strings.Contains(string(out), "seccomp.h: No such file") {
		t.Skip("libseccomp-dev is not installed")
	}
	if err != nil {
		t.Fatalf("cc %s: %v\n%s", source, err, out)
	}
	return path
}

// reference is libseccomp, behind testdata/reference.c.
type reference struct {
	path  string
	table map[string]map[specs.Arch]uint32 // name → numbers
}

func newReference(t testing.TB) *reference {
	t.Helper()
	r := &reference{path: helper(t, "reference.c", "-lseccomp"), table: make(map[string]map[specs.Arch]uint32)}
	out, err := exec.Command(r.path, "table").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		n, err := strconv.ParseUint(f[2], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		if r.table[f[0]] == nil {
			r.table[f[0]] = make(map[specs.Arch]uint32)
		}
		r.table[f[0]][specs.Arch(f[1])] = uint32(n)
	}
	return r
}

// known returns the profile without the names that are newer than the reference.
func (r *reference) known(s *specs.LinuxSeccomp) *specs.LinuxSeccomp {
	older := *s
	older.Syscalls = slices.Clone(s.Syscalls)
	for i := range older.Syscalls {
		older.Syscalls[i].Names = slices.DeleteFunc(slices.Clone(s.Syscalls[i].Names), func(name string) bool {
			return r.table[name] == nil && lookup(name) != lookup("no_such_call")
		})
	}
	return &older
}

// compile builds the profile with libseccomp, by the calls that runc would make.
// The error is libseccomp's refusal.
func (r *reference) compile(t testing.TB, s *specs.LinuxSeccomp) ([]unix.SockFilter, error) {
	t.Helper()
	fallback := referenceAction(s.DefaultAction, s.DefaultErrnoRet)
	var in strings.Builder
	fmt.Fprintf(&in, "default %x\noptimize\n", fallback)
	for _, a := range s.Architectures {
		if a == specs.ArchX86 || a == specs.ArchX86_64 || a == specs.ArchX32 {
			fmt.Fprintf(&in, "arch %s\n", strings.ToLower(strings.TrimPrefix(string(a), "SCMP_ARCH_")))
		}
	}
	for _, group := range s.Syscalls {
		action := referenceAction(group.Action, group.ErrnoRet)
		if action == fallback {
			continue
		}
		for _, name := range group.Names {
			for _, args := range referenceArgs(group.Args) {
				fmt.Fprintf(&in, "rule %x %s %d", action, name, len(args))
				for _, arg := range args {
					fmt.Fprintf(&in, " %d %s %d %d", arg.Index, strings.TrimPrefix(string(arg.Op), "SCMP_CMP_"), arg.Value, arg.ValueTwo)
				}
				in.WriteByte('\n')
			}
		}
	}
	cmd := exec.Command(r.path)
	cmd.Stdin = strings.NewReader(in.String())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() == 3 {
		return nil, fmt.Errorf("libseccomp: %s", stderr.String())
	}
	if err != nil {
		t.Fatalf("reference: %v\n%s", err, stderr.String())
	}
	prog := make([]unix.SockFilter, len(out)/8)
	if _, err := binary.Decode(out, binary.NativeEndian, prog); err != nil {
		t.Fatal(err)
	}
	return prog, nil
}

// referenceAction spells out the kernel's values, so that a wrong constant in
// the package is seen.
func referenceAction(a specs.LinuxSeccompAction, ret *uint) uint32 {
	code := uint32(1)
	if ret != nil {
		code = uint32(*ret)
	}
	switch a {
	case specs.ActAllow:
		return 0x7fff0000
	case specs.ActLog:
		return 0x7ffc0000
	case specs.ActTrace:
		return 0x7ff00000 | code
	case specs.ActErrno:
		return 0x00050000 | code
	case specs.ActTrap:
		return 0x00030000
	case specs.ActKillProcess:
		return 0x80000000
	}
	return 0
}

// referenceArgs splits conditions as runc does.
func referenceArgs(args []specs.LinuxSeccompArg) [][]specs.LinuxSeccompArg {
	seen := make(map[uint]int)
	for _, arg := range args {
		seen[arg.Index]++
	}
	if len(seen) == len(args) {
		return [][]specs.LinuxSeccompArg{args}
	}
	var split [][]specs.LinuxSeccompArg
	for _, arg := range args {
		split = append(split, []specs.LinuxSeccompArg{arg})
	}
	return split
}

// enosys returns what runc answers before it lets libseccomp's program decide.
func (r *reference) enosys(s *specs.LinuxSeccomp, data *seccompData) bool {
	switch s.DefaultAction {
	case specs.ActAllow, specs.ActLog, specs.ActTrace:
		return false
	}
	arch := specs.ArchX86_64
	switch {
	case data.arch == unix.AUDIT_ARCH_I386:
		arch = specs.ArchX86
	case data.arch != unix.AUDIT_ARCH_X86_64:
		return false
	case data.number&(1<<30) != 0:
		arch = specs.ArchX32
	}
	if arch != specs.ArchX86_64 && !slices.Contains(s.Architectures, arch) {
		return false
	}
	highest := uint32(0)
	for _, group := range s.Syscalls {
		for _, name := range group.Names {
			if arch == specs.ArchX86 && (slices.Contains(socketcalls(), name) || slices.Contains(ipcs(), name)) {
				continue // libseccomp has a pseudo number for them
			}
			highest = max(highest, r.table[name][arch])
		}
	}
	return highest != 0 && data.number > highest
}

// agree compares two verdicts over every system call number and many arguments.
func agree(t *testing.T, r *reference, s *specs.LinuxSeccomp, got []unix.SockFilter, want func(*seccompData) uint32) {
	t.Helper()
	all, some := interestingArgs(s), [][6]uint64{{}, {1, 2, 3, 4, 5, 6}}
	conditional := conditionalNumbers(r, s)
	for _, arch := range []uint32{unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, unix.AUDIT_ARCH_AARCH64, 0} {
		for _, number := range interestingNumbers() {
			args := some
			if conditional[number] {
				args = all
			}
			for _, a := range args {
				data := &seccompData{number, arch, a}
				verdict, _ := simulate(got, data)
				if expected := want(data); verdict != expected {
					t.Fatalf("arch %#x, number %d (%#x), arguments %#x: verdict %#x, want %#x", arch, number, number, a, verdict, expected)
				}
			}
		}
	}
}

// conditionalNumbers returns the numbers, of whatever architecture, of calls that
// the profile looks at the arguments of, and of the multiplexers.
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

func interestingNumbers() []uint32 {
	numbers := []uint32{
		0x3fffffff, 0x7ffffffe, 0x7fffffff, 0x80000000, 0x80000001, 0xbfffffff, 0xc0000000, 0xc0000100,
		0xfffffffe, 0xffffffff, 0xf0001, 0xf0005, ^uint32(100), ^uint32(200),
	}
	for n := range uint32(1024) {
		numbers = append(numbers, n, n|1<<30)
	}
	return numbers
}

// interestingArgs returns the values around those that the profile compares
// with, for all arguments alike and shuffled.
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

func TestEveryNumberThatLibseccompKnowsIsTheSameHere(t *testing.T) {
	r := newReference(t)
	for name, numbers := range r.table {
		got := lookup(name)
		for _, a := range architectures() {
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

func TestVerdictsAreLibseccomps(t *testing.T) {
	r := newReference(t)
	for name, full := range profiles(t) {
		t.Run(name, func(t *testing.T) {
			s := r.known(full)
			theirs, err := r.compile(t, s)
			if err != nil {
				t.Fatal(err)
			}
			if err := check(theirs); err != nil {
				t.Fatalf("the reference's program: %v", err)
			}
			ours, _, err := compile(s, false)
			if err != nil {
				t.Fatal(err)
			}
			if err := check(ours); err != nil {
				t.Fatal(err)
			}
			agree(t, r, s, ours, func(d *seccompData) uint32 {
				verdict, _ := simulate(theirs, d)
				return verdict
			})
			t.Logf("%d instructions, libseccomp %d", len(ours), len(theirs))
		})
	}
}

func TestCallsNewerThanTheProfileAnswerENOSYSAsFromRunc(t *testing.T) {
	r := newReference(t)
	for name, full := range profiles(t) {
		t.Run(name, func(t *testing.T) {
			s := r.known(full)
			plain, _, err := compile(s, false)
			if err != nil {
				t.Fatal(err)
			}
			ours, _, err := Compile(s)
			if err != nil {
				t.Fatal(err)
			}
			if err := check(ours); err != nil {
				t.Fatal(err)
			}
			agree(t, r, s, ours, func(d *seccompData) uint32 {
				if r.enosys(s, d) {
					return unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
				}
				verdict, _ := simulate(plain, d)
				return verdict
			})
		})
	}
}
