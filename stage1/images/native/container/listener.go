package container

import (
	"fmt"
	"os"
	"path"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
)

// checkListener checks that the socket of the seccomp agent exists, before anything is
// made. It cannot check whether the agent listens, because each connection is for one
// filter. The start of the program, which loads the filter, reports that.
func checkListener(s *specs.LinuxSeccomp, flags uint) error {
	if flags&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER == 0 {
		return nil
	}
	if !path.IsAbs(s.ListenerPath) {
		return fmt.Errorf("linux.seccomp.listenerPath: %q is not an absolute path", s.ListenerPath)
	}
	info, err := os.Stat(s.ListenerPath)
	if err != nil {
		return fmt.Errorf("linux.seccomp.listenerPath: %w", err)
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("linux.seccomp.listenerPath: %s is not a socket", s.ListenerPath)
	}
	return nil
}

// ProcessState returns the OCI container process state that a seccomp agent gets with the
// listener of a process. pid is the pid of that process, and first the pid of the app's
// first process.
func ProcessState(spec *specs.Spec, id, bundle, status string, pid, first int) []byte {
	state := stateOf(spec, id, bundle)
	state.Status, state.Pid = specs.ContainerState(status), first
	b, err := plainjson.Encode(specs.ContainerProcessState{
		Version: specs.Version, Fds: []string{specs.SeccompFdName}, Pid: pid,
		Metadata: spec.Linux.Seccomp.ListenerMetadata, State: state,
	})
	if err != nil {
		panic(err) // strings and numbers can always be marshalled
	}
	return b
}
