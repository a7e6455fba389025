package supervisor

import (
	"context"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
)

// Supervisor is the supervisor of one pod.
type Supervisor struct {
	exe     *os.File                // this binary
	hidden  atomic.Pointer[os.File] // exe where nobody can read it; nil until it is needed
	notices *os.File                // RKT_NOTIFY_FD; nil if nobody wants to know
	// noticeWords says that stage 0 takes notices that say how a process ended.
	noticeWords bool
	log         io.Writer // for what has no caller to be told
	children    *proc.Children
	filters     container.Filters
	// enclosure makes the namespaces of apps; nil: they are cloned.
	enclosure Enclosure

	// ctx ends when the pod is stopped; cancel ends it.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// quit has the process end: if forced, without waiting for anything. It
	// may be called more than once.
	quit func(forced bool)

	// launches are the calls that are making a process. It grows while mu is
	// held and stopping is false.
	launches sync.WaitGroup

	mu       sync.Mutex
	stopping bool
	apps     map[string]*app
	execs    map[name]*proc.Child // nil while it is being made
}
