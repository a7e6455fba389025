package seccomp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
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

// arm64 is the machine that local returns on arm64.
func arm64(t testing.TB) machine {
	t.Helper()
	lines, err := os.ReadFile("table_arm64.txt")
	if err != nil {
		t.Fatal(err)
	}
	return machine{table: string(lines), architectures: []architecture{
		{name: specs.ArchAARCH64, audit: unix.AUDIT_ARCH_AARCH64, column: 0, wide: true},
		{name: specs.ArchARM, audit: unix.AUDIT_ARCH_ARM, column: 1},
	}}
}

// reference is libseccomp, called by testdata/reference.c.
type reference struct {
	path    string
	machine machine
	table   map[string]map[specs.Arch]uint32 // name → numbers
}

func newReference(t testing.TB, m machine) *reference {
	t.Helper()
	r := &reference{helper(t, "reference.c", "-lseccomp"), m, make(map[string]map[specs.Arch]uint32)}
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

// known returns the profile without the system calls that the reference is too old
// to know.
func (r *reference) known(s *specs.LinuxSeccomp) *specs.LinuxSeccomp {
	older := *s
	older.Syscalls = slices.Clone(s.Syscalls)
	for i := range older.Syscalls {
		older.Syscalls[i].Names = slices.DeleteFunc(slices.Clone(s.Syscalls[i].Names), func(name string) bool {
			return r.table[name] == nil && r.machine.lookup(name) != r.machine.lookup("no_such_call")
		})
	}
	return &older
}

// errEndless says that libseccomp never returned for a profile. From some profiles
// version 2.5.4 makes a tree of tests that has a loop.
var errEndless = errors.New("libseccomp does not end")

// compile builds the profile with libseccomp, by the calls that runc would make.
// The error is libseccomp's refusal, or errEndless.
func (r *reference) compile(t testing.TB, s *specs.LinuxSeccomp) ([]unix.SockFilter, error) {
	t.Helper()
	cmd := exec.Command(r.path)
	cmd.Stdin = strings.NewReader(r.script(s))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case status.Signaled() && status.Signal() == unix.SIGXCPU:
		return nil, errEndless
	case status.ExitStatus() == 3:
		return nil, fmt.Errorf("libseccomp: %s", stderr.String())
	case err != nil:
		t.Fatalf("reference: %v\n%s", err, stderr.String())
	}
	prog := make([]unix.SockFilter, len(out)/8)
	if _, err := binary.Decode(out, binary.NativeEndian, prog); err != nil {
		t.Fatal(err)
	}
	if err := check(prog); err != nil {
		t.Fatalf("the reference's program: %v", err)
	}
	return prog, nil
}

// script translates a profile into the text that testdata/reference.c reads.
func (r *reference) script(s *specs.LinuxSeccomp) string {
	fallback := referenceAction(s.DefaultAction, s.DefaultErrnoRet)
	var head, rules strings.Builder
	count := 0
	for _, group := range s.Syscalls {
		action := referenceAction(group.Action, group.ErrnoRet)
		count += len(group.Names)
		if action == fallback {
			continue
		}
		for _, name := range group.Names {
			for _, args := range referenceArgs(group.Args) {
				fmt.Fprintf(&rules, "rule %x %s %d", action, name, len(args))
				for _, arg := range args {
					fmt.Fprintf(&rules, " %d %s %d %d", arg.Index, strings.TrimPrefix(string(arg.Op), "SCMP_CMP_"), arg.Value, arg.ValueTwo)
				}
				rules.WriteByte('\n')
			}
		}
	}
	fmt.Fprintf(&head, "default %x\n", fallback)
	if count > 32 {
		head.WriteString("optimize\n")
	}
	for _, a := range r.covers(s) {
		fmt.Fprintf(&head, "arch %s\n", referenceArch(a))
	}
	if native := r.machine.architectures[0].name; native != specs.ArchX86_64 {
		fmt.Fprintf(&head, "remove %s\n", referenceArch(specs.ArchX86_64))
	}
	return head.String() + rules.String()
}

// covers returns the architectures of the machine that a profile covers.
func (r *reference) covers(s *specs.LinuxSeccomp) []specs.Arch {
	var names []specs.Arch
	for i, a := range r.machine.architectures {
		if i == 0 || slices.Contains(s.Architectures, a.name) {
			names = append(names, a.name)
		}
	}
	return names
}

func referenceArch(name specs.Arch) string {
	return strings.ToLower(strings.TrimPrefix(string(name), "SCMP_ARCH_"))
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

// enosys returns a function that tells which calls runc answers with ENOSYS
// before it lets libseccomp's program decide.
func (r *reference) enosys(s *specs.LinuxSeccomp) func(*seccompData) bool {
	switch s.DefaultAction {
	case specs.ActAllow, specs.ActLog, specs.ActTrace:
		return func(*seccompData) bool { return false }
	}
	highest := make(map[specs.Arch]uint32)
	for _, group := range s.Syscalls {
		for _, name := range group.Names {
			for _, arch := range r.covers(s) {
				if arch == specs.ArchX86 && (slices.Contains(socketcalls(), name) || slices.Contains(ipcs(), name)) {
					continue // libseccomp has a pseudo number for them
				}
				highest[arch] = max(highest[arch], r.table[name][arch])
			}
		}
	}
	return func(data *seccompData) bool {
		for arch, n := range highest {
			if matches(arch, data) && n != 0 && data.number > n {
				return true
			}
		}
		return false
	}
}

// matches reports whether runc counts a call as one of an architecture.
func matches(arch specs.Arch, data *seccompData) bool {
	switch data.arch {
	case unix.AUDIT_ARCH_X86_64:
		if data.number&(1<<30) != 0 {
			return arch == specs.ArchX32
		}
		return arch == specs.ArchX86_64
	case unix.AUDIT_ARCH_I386:
		return arch == specs.ArchX86
	case unix.AUDIT_ARCH_AARCH64:
		return arch == specs.ArchAARCH64
	case unix.AUDIT_ARCH_ARM:
		return arch == specs.ArchARM
	}
	return false
}
