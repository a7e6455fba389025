package older

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/podmanifest"
)

// defaultCapabilities are those of an app that says nothing of them, as rkt has it.
var defaultCapabilities = [...]string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_KILL", "CAP_MKNOD", "CAP_NET_RAW",
	"CAP_NET_BIND_SERVICE", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETFCAP", "CAP_SYS_CHROOT",
}

// set is the value of isolators that list names.
type set struct {
	Set   []string `json:"set"`
	Errno string   `json:"errno"`
}

// isolate says isolators in the words of OCI.
func isolate(a *podmanifest.App, s *specs.Spec, o *Options) error {
	caps := defaultCapabilities[:]
	for _, i := range a.Isolators {
		var err error
		switch i.Name {
		case "os/linux/capabilities-retain-set", "os/linux/capabilities-remove-set":
			var of set
			if err = json.Unmarshal(i.Value, &of); err == nil && strings.HasSuffix(i.Name, "retain-set") {
				caps = of.Set
			} else if err == nil {
				caps = slices.DeleteFunc(slices.Clone(caps), func(c string) bool { return slices.Contains(of.Set, c) })
			}
		case "os/linux/no-new-privileges":
			err = json.Unmarshal(i.Value, &s.Process.NoNewPrivileges)
		case "os/linux/oom-score-adj":
			err = json.Unmarshal(i.Value, &s.Process.OOMScoreAdj)
		case "os/linux/seccomp-retain-set", "os/linux/seccomp-remove-set":
			if !o.AnySystemCall {
				err = filter(s, i)
			}
		case "os/linux/selinux-context":
			err = label(s, i)
		case "os/unix/sysctl":
			err = json.Unmarshal(i.Value, &s.Linux.Sysctl)
		case "resource/memory", "resource/cpu", "os/linux/cpu-shares": // the caller's cgroup has them
		default:
			err = fmt.Errorf("it is not supported")
		}
		if err != nil {
			return fmt.Errorf("isolator %s: %w", i.Name, err)
		}
	}
	if !o.AnyCapability {
		s.Process.Capabilities = capabilities(caps, s.Process.User.UID)
	} else {
		s.Process.Capabilities = capabilities(container.CapabilityNames(), s.Process.User.UID)
	}
	return nil
}

// capabilities are what a bounding set leaves who executes a program.
func capabilities(bounding []string, uid uint32) *specs.LinuxCapabilities {
	c := &specs.LinuxCapabilities{Bounding: bounding}
	if uid == 0 {
		c.Effective, c.Permitted = bounding, bounding
	}
	return c
}

// filter says a set of system calls. rkt knows many sets by name; of these only those
// that mean all or nothing have the same meaning everywhere.
func filter(s *specs.Spec, i podmanifest.Isolator) error {
	var of set
	if err := json.Unmarshal(i.Value, &of); err != nil {
		return err
	}
	retain := strings.HasSuffix(i.Name, "retain-set")
	if retain && slices.Contains(of.Set, "@appc.io/all") || !retain && slices.Contains(of.Set, "@appc.io/empty") {
		return nil
	}
	for _, name := range of.Set {
		if strings.HasPrefix(name, "@") {
			return fmt.Errorf("the set %s is not supported: list its system calls", name)
		}
	}
	action, errno, err := refusal(of.Errno)
	if err != nil {
		return err
	}
	f := &specs.LinuxSeccomp{DefaultAction: specs.ActAllow}
	rule := specs.LinuxSyscall{Names: of.Set, Action: action, ErrnoRet: errno}
	if retain {
		f.DefaultAction, f.DefaultErrnoRet = action, errno
		rule.Action, rule.ErrnoRet = specs.ActAllow, nil
	}
	f.Syscalls = []specs.LinuxSyscall{rule}
	s.Linux.Seccomp = f
	return nil
}

// refusal is what happens to a system call that is not allowed.
func refusal(name string) (specs.LinuxSeccompAction, *uint, error) {
	if name == "" {
		return specs.ActKillProcess, nil, nil
	}
	for n := uint(1); n < 134; n++ {
		if unix.ErrnoName(unix.Errno(n)) == name {
			return specs.ActErrno, &n, nil
		}
	}
	return "", nil, fmt.Errorf("errno %s is not known", name)
}

func label(s *specs.Spec, i podmanifest.Isolator) error {
	var c struct{ User, Role, Type, Level string }
	if err := json.Unmarshal(i.Value, &c); err != nil {
		return err
	}
	s.Process.SelinuxLabel = strings.Join([]string{c.User, c.Role, c.Type, c.Level}, ":")
	return nil
}
