package seccomp

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Compile returns the program for a profile and the flags to install it with:
//
//	seccomp(SECCOMP_SET_MODE_FILTER, flags, prog)
//
// If a profile is nil, or has neither a default action nor system calls, it asks for no
// filter, and prog is nil. The same profile always gives the same program. An error names
// the field. It unwraps to errors.ErrUnsupported if the profile is valid and this package
// does not support it.
//
// The package's documentation lists the differences from libseccomp.
func Compile(s *specs.LinuxSeccomp) (prog []unix.SockFilter, flags uint, err error) {
	return compile(local(), s, true)
}

// compile is Compile for any machine. Without enosys it leaves out runc's ENOSYS for calls
// newer than the profile, as libseccomp does.
func compile(m machine, s *specs.LinuxSeccomp, enosys bool) ([]unix.SockFilter, uint, error) {
	if s == nil || s.DefaultAction == "" && len(s.Syscalls) == 0 {
		return nil, 0, nil
	}
	listens, err := listener(s)
	if err != nil {
		return nil, 0, err
	}
	flags, err := compileFlags(s.Flags, listens)
	if err != nil {
		return nil, 0, err
	}
	fallback, err := compileAction(s.DefaultAction, s.DefaultErrnoRet)
	if err != nil {
		return nil, 0, fmt.Errorf("linux.seccomp.defaultAction: %w", err)
	}
	filters, err := lower(m, s, fallback)
	if err != nil {
		return nil, 0, err
	}
	prog, err := emit(filters, fallback, enosys && !permissive(fallback))
	if err != nil {
		return nil, 0, err
	}
	return prog, flags, nil
}

// lower translates a profile into one filter for each architecture.
func lower(m machine, s *specs.LinuxSeccomp, fallback uint32) ([]*filter, error) {
	archs, err := m.selected(s.Architectures)
	if err != nil {
		return nil, err
	}
	filters := make([]*filter, len(archs))
	for i, a := range archs {
		filters[i] = newFilter(a)
	}
	for i, group := range s.Syscalls {
		rules, err := compileRules(group)
		if err != nil {
			return nil, fmt.Errorf("linux.seccomp.syscalls[%d]: %w", i, err)
		}
		for _, name := range group.Names {
			if err := addRules(filters, name, m.lookup(name), rules, fallback); err != nil {
				return nil, fmt.Errorf("linux.seccomp.syscalls[%d]: %s: %w", i, name, err)
			}
		}
	}
	return filters, nil
}

// compileRules returns the rules of one entry of linux.seccomp.syscalls. Normally this is
// one rule, and all its conditions must hold. If an argument is named more than once, each
// condition becomes a rule of its own. runc does that for profiles that rely on it.
func compileRules(group specs.LinuxSyscall) ([]rule, error) {
	action, err := compileAction(group.Action, group.ErrnoRet)
	if err != nil {
		return nil, err
	}
	var conditions []condition
	repeated := false
	for _, arg := range group.Args {
		c, err := compileCondition(arg)
		if err != nil {
			return nil, err
		}
		repeated = repeated || slices.ContainsFunc(conditions, func(d condition) bool { return d.arg == c.arg })
		conditions = append(conditions, c)
	}
	if !repeated {
		slices.SortFunc(conditions, func(c, d condition) int { return cmp.Compare(c.arg, d.arg) })
		return []rule{{conditions: conditions, action: action}}, nil
	}
	var rules []rule
	for _, c := range conditions {
		rules = append(rules, rule{conditions: []condition{c}, action: action})
	}
	return rules, nil
}

// addRules adds the rules of one system call to every architecture that has the call. It
// leaves out rules that repeat the default action, but the profile counts as knowing their
// numbers.
func addRules(filters []*filter, name string, numbers [maxColumns]int, rules []rule, fallback uint32) error {
	if name == "" {
		return errors.New("an empty name is not a system call")
	}
	for _, f := range filters {
		direct, has := f.arch.number(numbers)
		mux, selector, muxed := f.arch.multiplexed(name)
		if has && !muxed { // as in runc, which looks for only one number of a name
			f.highest = max(f.highest, direct)
		}
		for _, r := range rules {
			if r.action == fallback {
				continue
			}
			if muxed {
				through := rule{conditions: throughMultiplexer(r.conditions, selector), action: r.action}
				if err := f.add(mux, through); err != nil {
					return fmt.Errorf("%s: %w", f.arch.name, err)
				}
			}
			if has {
				if err := f.add(direct, r); err != nil {
					return fmt.Errorf("%s: %w", f.arch.name, err)
				}
			}
		}
	}
	return nil
}
