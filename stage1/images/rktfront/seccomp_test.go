package rktfront

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/isolator"
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
		"nothing is denied": {[]string{isolator.RemoveCalls, `{"set": ["@appc.io/empty"], "errno": "EPERM"}`}, specs.ActAllow, "read set_tls", "unshare mount", specs.ActErrno},
		"all is allowed":    {[]string{isolator.RetainCalls, `{"set": ["@appc.io/all"]}`}, "", "", "", ""},
		"rkt's allowed":     {[]string{isolator.RetainCalls, `{"set": ["@rkt/default-whitelist", "mount"]}`}, specs.ActAllow, "read mount sync_file_range2", "unshare", specs.ActKillProcess},
		"Docker's allowed":  {[]string{isolator.RetainCalls, `{"set": ["@docker/default-whitelist"]}`}, specs.ActAllow, "read chroot modify_ldt", "mount set_tls", specs.ActKillProcess},
		"rkt's denied":      {[]string{isolator.RemoveCalls, `{"set": ["@rkt/default-blacklist"]}`}, specs.ActKillProcess, "mount unshare bpf", "read execve", specs.ActAllow},
		"Docker's denied":   {[]string{isolator.RemoveCalls, `{"set": ["@docker/default-blacklist"], "errno": "ENOSYS"}`}, specs.ActErrno, "mount", "read", specs.ActAllow},
		"systemd's denied": {[]string{isolator.RemoveCalls, `{"set": ["@systemd/clock", "@systemd/mount", "@systemd/obsolete", "@systemd/privileged", "@systemd/raw-io"]}`},
			specs.ActKillProcess, "adjtimex move_mount uselib setuid fchown init_module kexec_load swapon iopl", "read socket", specs.ActAllow},
		"systemd's allowed": {[]string{isolator.RetainCalls, `{"set": ["@systemd/default-whitelist", "@systemd/network-io", "@systemd/process", "openat"], "errno": "EACCES"}`},
			specs.ActAllow, "futex socket clone3 openat execve", "mount write", specs.ActErrno},
		"a list":          {[]string{isolator.RetainCalls, `{"set": ["read", "write"]}`}, specs.ActAllow, "read write execve exit_group rt_sigreturn nanosleep", "open mmap", specs.ActKillProcess},
		"a list of calls": {[]string{isolator.RemoveCalls, `{"set": ["reboot"]}`}, specs.ActKillProcess, "reboot", "read execve", specs.ActAllow},
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
		"isolator os/linux/seccomp-retain-set: there is no set @systemd/basic-io":           {isolator.RetainCalls, `{"set": ["read", "@systemd/basic-io"]}`},
		"isolator os/linux/seccomp-remove-set: there is no set @unscoped":                   {isolator.RemoveCalls, `{"set": ["@unscoped"]}`},
		"isolator os/linux/seccomp-retain-set: @appc.io/empty leaves an app no system call": {isolator.RetainCalls, `{"set": ["@appc.io/empty"]}`},
		"isolator os/linux/seccomp-remove-set: @appc.io/all leaves an app no system call":   {isolator.RemoveCalls, `{"set": ["@appc.io/all"]}`},
		"isolator os/linux/seccomp-remove-set: the set is empty":                            {isolator.RemoveCalls, `{"set": []}`},
		"isolator os/linux/seccomp-remove-set: errno ESPRESSO is not known":                 {isolator.RemoveCalls, `{"set": ["reboot"], "errno": "ESPRESSO"}`},
		"isolator os/linux/seccomp-remove-set: there is one of system calls already":        {isolator.RetainCalls, `{"set": ["@appc.io/all"]}`, isolator.RemoveCalls, `{"set": ["reboot"]}`},
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
		s, err := isolated(uid, &Options{AnySystemCall: true}, isolator.RetainCalls, `{"set": ["read"]}`)
		if err != nil || s.Linux.Seccomp != nil || s.Process.NoNewPrivileges {
			t.Errorf("uid %d, --disable-seccomp: %+v, %v", uid, s.Linux.Seccomp, err)
		}
	}
}
