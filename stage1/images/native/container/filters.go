package container

import (
	"errors"
	"reflect"
	"sync"
	"unsafe"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seccomp"
)

// Filters caches the last seccomp profile and its program, because most apps of a pod have
// the same profile, and all execs of an app do. The compilation of a profile takes a
// millisecond and leaves a quarter of a megabyte of garbage. A nil Filters caches nothing.
type Filters struct {
	mu      sync.Mutex
	profile *specs.LinuxSeccomp
	program []byte // sock_filter instructions
	flags   uint
}

// Share returns a profile that is equal to s: the cached one if that is equal, so that the
// caller's copy can be collected as garbage.
func (f *Filters) Share(s *specs.LinuxSeccomp) *specs.LinuxSeccomp {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s != nil && reflect.DeepEqual(f.profile, s) {
		return f.profile
	}
	return s
}

// compile returns the program of a profile and the flags with which to install it. The
// program is nil if there is no profile or the profile forbids nothing. Callers must not
// change the program.
func (f *Filters) compile(s *specs.LinuxSeccomp) ([]byte, uint, error) {
	if f == nil || s == nil {
		return compileSeccomp(s)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.profile != nil && (f.profile == s || reflect.DeepEqual(f.profile, s)) {
		return f.program, f.flags, nil
	}
	program, flags, err := compileSeccomp(s)
	if err == nil {
		f.profile, f.program, f.flags = s, program, flags
	}
	return program, flags, err
}

func compileSeccomp(s *specs.LinuxSeccomp) ([]byte, uint, error) {
	if s == nil {
		return nil, 0, nil
	}
	prog, flags, err := seccomp.Compile(s)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, 0, serve.Unsupported("%v", err)
	} else if err != nil {
		return nil, 0, err
	}
	if len(prog) == 0 {
		return nil, 0, nil
	}
	size := len(prog) * int(unsafe.Sizeof(prog[0]))
	bytes := append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&prog[0])), size)...)
	// Do not filter the other threads: they are the Go runtime's, and end at the exec.
	return bytes, flags &^ unix.SECCOMP_FILTER_FLAG_TSYNC, nil
}
