package supervisor

import (
	"context"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/proc/rest"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
)

// Supervisor is the supervisor of one pod.
type Supervisor struct {
	exe     *os.File                // this binary
	hidden  atomic.Pointer[os.File] // exe in a form that no user can read; nil until it is needed
	notices *os.File                // RKT_NOTIFY_FD, or nil
	// noticeWords says that stage 0 accepts notices with an exit.
	noticeWords bool
	log         io.Writer // for messages for which no caller waits
	children    *proc.Children
	filters     container.Filters
	memory      *rest.Memory
	// spawner makes the processes of apps; if it is nil, clone(2) does.
	spawner Spawner

	// ctx ends when the pod is stopped; cancel ends it.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// quit ends the process. If forced is set, it does not wait. It may be called more
	// than once.
	quit func(forced bool)

	// making counts the calls that are making a process. It grows only while mu is held
	// and stopping is false.
	making sync.WaitGroup

	mu       sync.Mutex
	stopping bool
	apps     map[string]*app
	execs    map[name]*proc.Child // nil while the exec is being made
	byInit   map[string]int       // how many apps and execs init has made, by the reason
}
