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
	hidden  atomic.Pointer[os.File] // exe where no user can read it; nil until it is needed
	notices *os.File                // RKT_NOTIFY_FD, or nil
	// noticeWords says that stage 0 accepts notices with an exit.
	noticeWords bool
	log         io.Writer // for messages that no caller gets
	children    *proc.Children
	filters     container.Filters
	// spawner makes the namespaces of apps; nil: they are cloned.
	spawner Spawner

	// ctx ends when the pod is stopped; cancel ends it.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// quit ends the process: if forced, without waiting. It may be called more than once.
	quit func(forced bool)

	// making counts the calls that are making a process. It grows only while mu is held
	// and stopping is false.
	making sync.WaitGroup

	mu       sync.Mutex
	stopping bool
	apps     map[string]*app
	execs    map[name]*proc.Child // nil while it is being made
}
