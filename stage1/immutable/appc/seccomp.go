package appc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/appc/spec/schema/types"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

const seccompField = "/linux/seccomp"

// everything is rkt's wildcard, which means no filter. For an app without an isolator for
// seccomp, rkt's stage1s use a list of calls of 2016 and kill programs that make newer
// calls.
const everything = "@appc.io/all"

// seccomp always adds an isolator. appc knows one list of system calls, allowed or denied, and
// one action for all other calls.
func (t *translator) seccomp() error {
	var profile *specs.LinuxSeccomp
	if t.spec.Linux != nil {
		profile = t.spec.Linux.Seccomp
	}
	if profile == nil {
		return t.retain("", everything)
	}
	list, err := t.seccompList(profile)
	switch {
	case err != nil:
		return err
	case list == nil, !list.allowed && len(list.names) == 0:
		return t.retain("", everything)
	case list.allowed:
		return t.retain(list.errno, list.names...)
	}
	set, err := types.NewLinuxSeccompRemoveSet(list.errno, list.names...)
	if err != nil {
		return fmt.Errorf("%s: %w", seccompField, err)
	}
	return t.add(set.AsIsolator())
}

func (t *translator) retain(errno string, names ...string) error {
	set, err := types.NewLinuxSeccompRetainSet(errno, names...)
	if err != nil {
		return fmt.Errorf("%s: %w", seccompField, err)
	}
	return t.add(set.AsIsolator())
}

// list is a profile as appc has it: the names of allowed or of denied calls, and the error
// that a denied call returns. If the error is empty, a denied call kills the program.
type list struct {
	allowed bool
	names   []string
	errno   string
}

// seccompList returns nil if appc cannot express the profile and the field is excused.
func (t *translator) seccompList(p *specs.LinuxSeccomp) (*list, error) {
	l := &list{allowed: p.DefaultAction != specs.ActAllow}
	denial, errno := p.DefaultAction, p.DefaultErrnoRet
	for _, more := range []struct {
		field string
		asked bool
	}{{"flags", len(p.Flags) > 0}, {"listenerPath", p.ListenerPath != ""}, {"listenerMetadata", p.ListenerMetadata != ""}} {
		if more.asked {
			return nil, t.unsaid(seccompField, seccompField+"/"+more.field, "there is a list of system calls, and nothing else")
		}
	}
	for i, rule := range p.Syscalls {
		at := fmt.Sprintf("%s/syscalls/%d", seccompField, i)
		switch {
		case len(rule.Args) > 0:
			return nil, t.unsaid(seccompField, at+"/args", "system calls are told apart by their names alone")
		case l.allowed && rule.Action == p.DefaultAction && (rule.Action != specs.ActErrno || number(rule.ErrnoRet) == number(errno)):
			continue
		case l.allowed && rule.Action != specs.ActAllow:
			return nil, t.unsaid(seccompField, at+"/action", "there is one action for all that is not listed")
		case !l.allowed && rule.Action == specs.ActAllow:
			continue
		case !l.allowed && len(l.names) == 0:
			denial, errno = rule.Action, rule.ErrnoRet
		case !l.allowed && (rule.Action != denial || number(rule.ErrnoRet) != number(errno)):
			return nil, t.unsaid(seccompField, at+"/action", "there is one action for all that is listed")
		}
		l.names = append(l.names, rule.Names...)
	}
	var err error
	l.errno, err = t.denial(denial, errno)
	if err != nil {
		return nil, err
	}
	if l.allowed && len(l.names) == 0 {
		return nil, t.unsaid(seccompField, seccompField+"/syscalls", "a list of system calls cannot be empty")
	}
	slices.Sort(l.names)
	l.names = slices.Compact(l.names)
	if l.errno == excused {
		return nil, nil
	}
	return l, nil
}

// excused stands for an action that appc cannot express but whose field is excused.
const excused = "excused"

func number(errno *uint) uint {
	if errno == nil {
		return uint(unix.EPERM)
	}
	return *errno
}

// denial returns the effect on a denied call: the name of an error, or "" if SIGSYS kills
// the program.
func (t *translator) denial(action specs.LinuxSeccompAction, errno *uint) (string, error) {
	switch action {
	case specs.ActAllow, specs.ActKill, specs.ActKillProcess, specs.ActKillThread:
		return "", nil
	case specs.ActErrno:
		if name := unix.ErrnoName(unix.Errno(number(errno))); strings.HasPrefix(name, "E") {
			return name, nil
		}
	}
	return excused, t.unsaid(seccompField, seccompField+"/defaultAction", fmt.Sprintf("%s is neither an error nor death", action))
}
