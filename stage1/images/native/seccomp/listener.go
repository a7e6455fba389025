package seccomp

import (
	"errors"
	"fmt"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// listener reports whether a profile has calls that wait for an agent's answer. Without
// such calls a listenerPath has no effect.
//
// The process that installs the program writes the number of the listener's descriptor to
// the supervisor, and the agent gets the listener only after that. So write(2) must not
// wait for the agent, neither by name nor by the default action. runc refuses the same
// profiles.
func listener(s *specs.LinuxSeccomp) (bool, error) {
	if s.ListenerMetadata != "" && s.ListenerPath == "" {
		return false, errors.New("linux.seccomp.listenerMetadata: there is no listenerPath")
	}
	if s.DefaultAction == specs.ActNotify {
		return false, fmt.Errorf("linux.seccomp.defaultAction: %w: SCMP_ACT_NOTIFY cannot be the default", errors.ErrUnsupported)
	}
	listens := false
	for i, group := range s.Syscalls {
		if group.Action != specs.ActNotify {
			continue
		}
		if slices.Contains(group.Names, "write") {
			return false, fmt.Errorf("linux.seccomp.syscalls[%d]: %w: SCMP_ACT_NOTIFY cannot be used for write", i, errors.ErrUnsupported)
		}
		listens = true
	}
	if listens && s.ListenerPath == "" {
		return false, errors.New("linux.seccomp.listenerPath: SCMP_ACT_NOTIFY needs it")
	}
	return listens, nil
}
