package seccomp

import (
	"errors"
	"fmt"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// listener reports whether a profile has calls that wait for an agent's answer. A listenerPath
// without such calls means nothing.
//
// Whoever installs the program writes the listener's descriptor to another process before the
// agent has it, so a write cannot wait for the agent. runc refuses the same two profiles.
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
