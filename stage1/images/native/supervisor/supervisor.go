package supervisor

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
)

// Options are what a supervisor needs of the process in which it is.
type Options struct {
	Spawner  Spawner        // makes the processes of apps; if it is nil, clone(2) does
	Children *proc.Children // of this process
	// Record keeps the exit of an app or exec, before its process is reaped.
	Record func(app, exec string, s abi.Status) error
	// Notify tells stage 0 of an exit, after the process was reaped.
	Notify func(abi.Notice)
	// Console gives stage 0 the master of a terminal. call is the Request of the call that has asked for
	// it. The supervisor closes the master after that.
	Console func(call *abi.Request, master *os.File) error
	Log     io.Writer // for messages for which no caller waits
	// HolderEnded, which may be nil, is called when the pod's holder has ended.
	HolderEnded func(proc.Exit)
}

// Supervisor is the supervisor of one pod.
type Supervisor struct {
	Options
	exe     *os.File                // this binary
	hidden  atomic.Pointer[os.File] // exe in a form that no user can read; nil until it is needed
	filters container.Filters

	// ctx ends when the pod is stopped; cancel ends it.
	ctx    context.Context
	cancel context.CancelCauseFunc

	// making counts the calls that are making a process. It grows only while mu is held
	// and stopping is false.
	making sync.WaitGroup

	mu       sync.Mutex
	stopping bool
	apps     map[string]*app
	execs    map[name]*proc.Child // nil while the exec is being made
	byInit   map[string]int       // how many apps and execs init has made, by the kind of reason
}

// New returns a supervisor without apps. This process must inherit orphans, and be undumpable: see Undumpable.
func New(o Options) (*Supervisor, error) {
	exe, err := os.OpenFile("/proc/self/exe", unix.O_PATH, 0)
	if err != nil {
		return nil, fmt.Errorf("open this program: %w", err)
	}
	s := &Supervisor{
		Options: o,
		exe:     exe,
		apps:    map[string]*app{},
		execs:   map[name]*proc.Child{},
		byInit:  map[string]int{},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s, nil
}

// Undumpable makes this process undumpable, and so its children until they execute a program. The user
// that makes a user namespace has all capabilities over the processes in it, and the host's root makes
// those of all containers. Without the setting, a container that runs as the host's root could trace a
// child of the supervisor during the child's first instructions.
func Undumpable() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the supervisor undumpable: %w", err)
	}
	return nil
}

// Context ends when the pod is stopped. The contexts of calls have to end with it.
func (s *Supervisor) Context() context.Context { return s.ctx }

// Dispatch serves a call. serve.CodeOf has the exit code of an error.
func (s *Supervisor) Dispatch(ctx context.Context, c *serve.Asked) error {
	if err := checkRequest(c.Request); err != nil {
		return err
	}
	switch c.Entrypoint {
	case abi.Stop:
		s.Stop(c.Force)
		return nil
	case abi.AppAdd:
		return s.add(ctx, c)
	case abi.AppStart:
		return s.start(ctx, c.Request)
	case abi.AppStop:
		return s.stopApp(ctx, c.Request)
	case abi.AppRm:
		return s.remove(ctx, c.Request)
	case abi.AppSignal:
		return s.signal(ctx, c.Request)
	case abi.Enter:
		return s.enter(ctx, c)
	}
	return serve.Unsupported("entrypoint %s is not supported", c.Entrypoint)
}
