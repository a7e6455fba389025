// Package isolator translates App Container's isolators of system calls into a filter of the
// OCI spec. They are the only isolators that need more than a few lines: rkt has names for
// sets of system calls.
package isolator

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/podmanifest"
)

// Isolators that allow listed system calls, and that deny them.
const (
	RetainCalls = "os/linux/seccomp-retain-set"
	RemoveCalls = "os/linux/seccomp-remove-set"
)

// Filter translates a set of system calls as rkt did. Other calls kill the program, unless
// the isolator names an error. An isolator that denies nothing allows the default set.
func Filter(s *specs.Spec, i podmanifest.Isolator) error {
	var of struct {
		Set   []string `json:"set"`
		Errno string   `json:"errno"`
	}
	if err := json.Unmarshal(i.Value, &of); err != nil {
		return err
	}
	retain := i.Name == RetainCalls
	switch {
	case len(of.Set) == 0:
		return errors.New("the set is empty")
	case retain && slices.Contains(of.Set, Everything):
		return nil
	case !retain && slices.Contains(of.Set, Nothing):
		retain, of.Set = true, []string{defaultSet}
	}
	names, err := calls(of.Set)
	if err != nil {
		return err
	}
	action, errno, err := refusal(of.Errno)
	if err != nil {
		return err
	}
	f := &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Architectures: []specs.Arch{
		specs.ArchX86_64, specs.ArchX86, specs.ArchX32, specs.ArchAARCH64, specs.ArchARM,
	}}
	rule := specs.LinuxSyscall{Names: names, Action: action, ErrnoRet: errno}
	if retain {
		f.DefaultAction, f.DefaultErrnoRet = action, errno
		rule.Names = append(rule.Names, strings.Fields(implied)...)
		rule.Action, rule.ErrnoRet = specs.ActAllow, nil
	}
	slices.Sort(rule.Names)
	rule.Names = slices.Compact(rule.Names)
	f.Syscalls = []specs.LinuxSyscall{rule}
	s.Linux.Seccomp = f
	// A program without root's capabilities can load a filter only with no_new_privs.
	s.Process.NoNewPrivileges = s.Process.NoNewPrivileges || s.Process.User.UID != 0
	return nil
}

// calls returns the system calls of a list. The names in the list are calls or sets of
// calls.
func calls(list []string) (names []string, err error) {
	for _, name := range list {
		if !strings.HasPrefix(name, "@") {
			names = append(names, name)
			continue
		}
		of := callsOf(name)
		switch {
		case name == Everything || name == Nothing:
			return nil, fmt.Errorf("%s leaves an app no system call", name)
		case len(of) == 0:
			return nil, fmt.Errorf("there is no set %s", name)
		}
		names = append(names, of...)
	}
	return names, nil
}

// refusal returns the action for a denied system call. name is that of an error, or empty.
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
