package rktfront

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seccomp"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/podmanifest"
)

// isolated returns the spec of an app with isolators: their names and values.
func isolated(uid uint32, o *Options, isolators ...string) (*specs.Spec, error) {
	a := &podmanifest.App{}
	for i := 0; i < len(isolators); i += 2 {
		a.Isolators = append(a.Isolators, podmanifest.Isolator{Name: isolators[i], Value: json.RawMessage(isolators[i+1])})
	}
	s := &specs.Spec{Process: &specs.Process{User: specs.User{UID: uid}}, Linux: &specs.Linux{}}
	return s, isolate(a, s, o)
}

func TestSetsOfSystemCallsAreThoseOfRkt(t *testing.T) { // rkt-abi.md, section 10; trap 6
	for name, c := range map[string]struct {
		isolators  []string
		listed     specs.LinuxSeccompAction // what happens to what is listed; "": no filter
		in, notIn  string
		everything specs.LinuxSeccompAction // and to all else
	}{
		"nothing is said":   {nil, specs.ActAllow, "read clone execve", "unshare mount statx clone3", specs.ActKillProcess},
		"nothing is denied": {[]string{removeCalls, `{"set": ["@appc.io/empty"], "errno": "EPERM"}`}, specs.ActAllow, "read set_tls", "unshare mount", specs.ActErrno},
		"all is allowed":    {[]string{retainCalls, `{"set": ["@appc.io/all"]}`}, "", "", "", ""},
		"rkt's allowed":     {[]string{retainCalls, `{"set": ["@rkt/default-whitelist", "mount"]}`}, specs.ActAllow, "read mount sync_file_range2", "unshare", specs.ActKillProcess},
		"Docker's allowed":  {[]string{retainCalls, `{"set": ["@docker/default-whitelist"]}`}, specs.ActAllow, "read chroot modify_ldt", "mount set_tls", specs.ActKillProcess},
		"rkt's denied":      {[]string{removeCalls, `{"set": ["@rkt/default-blacklist"]}`}, specs.ActKillProcess, "mount unshare bpf", "read execve", specs.ActAllow},
		"Docker's denied":   {[]string{removeCalls, `{"set": ["@docker/default-blacklist"], "errno": "ENOSYS"}`}, specs.ActErrno, "mount", "read", specs.ActAllow},
		"systemd's denied": {[]string{removeCalls, `{"set": ["@systemd/clock", "@systemd/mount", "@systemd/obsolete", "@systemd/privileged", "@systemd/raw-io"]}`},
			specs.ActKillProcess, "adjtimex move_mount uselib setuid fchown init_module kexec_load swapon iopl", "read socket", specs.ActAllow},
		"systemd's allowed": {[]string{retainCalls, `{"set": ["@systemd/default-whitelist", "@systemd/network-io", "@systemd/process", "openat"], "errno": "EACCES"}`},
			specs.ActAllow, "futex socket clone3 openat execve", "mount write", specs.ActErrno},
		"a list":          {[]string{retainCalls, `{"set": ["read", "write"]}`}, specs.ActAllow, "read write execve exit_group rt_sigreturn nanosleep", "open mmap", specs.ActKillProcess},
		"a list of calls": {[]string{removeCalls, `{"set": ["reboot"]}`}, specs.ActKillProcess, "reboot", "read execve", specs.ActAllow},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := isolated(0, &Options{}, c.isolators...)
			if err != nil {
				t.Fatal(err)
			}
			f := s.Linux.Seccomp
			if c.listed == "" {
				if f != nil {
					t.Errorf("there is a filter: %+v", f)
				}
				return
			}
			if f == nil || len(f.Syscalls) != 1 || f.Syscalls[0].Action != c.listed || f.DefaultAction != c.everything {
				t.Fatalf("the filter is %+v", f)
			}
			for _, name := range strings.Fields(c.in) {
				if !slices.Contains(f.Syscalls[0].Names, name) {
					t.Errorf("%s is not listed", name)
				}
			}
			for _, name := range strings.Fields(c.notIn) {
				if slices.Contains(f.Syscalls[0].Names, name) {
					t.Errorf("%s is listed", name)
				}
			}
			if _, _, err := seccomp.Compile(f); err != nil {
				t.Errorf("it cannot be compiled: %v", err)
			}
		})
	}
}

func TestAFilterThatIsNotOneIsRefusedByName(t *testing.T) {
	for words, isolators := range map[string][]string{
		"isolator os/linux/seccomp-retain-set: there is no set @systemd/basic-io":           {retainCalls, `{"set": ["read", "@systemd/basic-io"]}`},
		"isolator os/linux/seccomp-remove-set: there is no set @unscoped":                   {removeCalls, `{"set": ["@unscoped"]}`},
		"isolator os/linux/seccomp-retain-set: @appc.io/empty leaves an app no system call": {retainCalls, `{"set": ["@appc.io/empty"]}`},
		"isolator os/linux/seccomp-remove-set: @appc.io/all leaves an app no system call":   {removeCalls, `{"set": ["@appc.io/all"]}`},
		"isolator os/linux/seccomp-remove-set: the set is empty":                            {removeCalls, `{"set": []}`},
		"isolator os/linux/seccomp-remove-set: errno ESPRESSO is not known":                 {removeCalls, `{"set": ["reboot"], "errno": "ESPRESSO"}`},
		"isolator os/linux/seccomp-remove-set: there is one of system calls already":        {retainCalls, `{"set": ["@appc.io/all"]}`, removeCalls, `{"set": ["reboot"]}`},
		"isolator os/linux/new: it is not supported":                                        {"os/linux/new", `1`},
	} {
		if _, err := isolated(0, &Options{}, isolators...); err == nil || err.Error() != words {
			t.Errorf("%v, want %s", err, words)
		}
	}
}

func TestOnlyRootFiltersWithoutNoNewPrivileges(t *testing.T) {
	for uid, want := range map[uint32]bool{0: false, 33: true} {
		if s, err := isolated(uid, &Options{}); err != nil || s.Process.NoNewPrivileges != want {
			t.Errorf("uid %d: %v, %v", uid, s.Process.NoNewPrivileges, err)
		}
		s, err := isolated(uid, &Options{AnySystemCall: true}, retainCalls, `{"set": ["read"]}`)
		if err != nil || s.Linux.Seccomp != nil || s.Process.NoNewPrivileges {
			t.Errorf("uid %d, --disable-seccomp: %+v, %v", uid, s.Linux.Seccomp, err)
		}
	}
}

// A misspelled name in a set would be ignored, like a call of another architecture.
func TestEveryCallOfASetIsKnownSomewhere(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("needs amd64, which knows the calls of i386 and of x32, too")
	}
	// These calls exist only on kernels or architectures for which no profile here is
	// compiled.
	foreign := strings.Fields(`arm_fadvise64_64 arm_sync_file_range fstatat64 sendfile64 afs_syscall bdflush break breakpoint cacheflush create_module ftime gtty idle lock mpx prof profil
		pciconfig_iobase pciconfig_read pciconfig_write riscv_flush_icache riscv_hwprobe s390_pci_mmio_read s390_pci_mmio_write set_tls
		stty swapcontext sync_file_range2 tuxcall ulimit uretprobe security umount`)
	for _, set := range strings.Fields(`@rkt/default-whitelist @rkt/default-blacklist @docker/default-whitelist @docker/default-blacklist @systemd/clock
		@systemd/default-whitelist @systemd/mount @systemd/network-io @systemd/obsolete @systemd/privileged @systemd/process @systemd/raw-io`) {
		names := callsOf(set)
		if len(names) == 0 {
			t.Errorf("%s is empty", set)
		}
		for _, name := range names {
			if slices.Contains(foreign, name) {
				continue
			}
			if !known(t, name) {
				t.Errorf("%s: %s is no system call", set, name)
			}
		}
	}
}

// known reports whether a filter of one call differs from a filter of a call that does not exist.
func known(t *testing.T, name string) bool {
	t.Helper()
	compiled := func(name string) string {
		prog, _, err := seccomp.Compile(&specs.LinuxSeccomp{
			DefaultAction: specs.ActAllow, Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32, specs.ArchAARCH64, specs.ArchARM},
			Syscalls: []specs.LinuxSyscall{{Names: []string{name}, Action: specs.ActErrno}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(prog)
	}
	return compiled(name) != compiled("no_such_call")
}
