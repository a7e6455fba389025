package shim

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/sandbox"
	"github.com/rkt/containerd-shim-rkt-v1/shim/debug"
	"github.com/rkt/containerd-shim-rkt-v1/wire/task"
)

// Limits of a shutdown. The service shuts down after its answer, so no client waits for it.
const (
	flushLimit = 3 * time.Second
	// podCloseLimit is more than the ABI gives to stop, stop --force and gc together.
	podCloseLimit = 45 * time.Second
)

// ServiceConfig is what a service is made of.
type ServiceConfig struct {
	// Namespace is containerd's namespace, which events are published in.
	Namespace string
	// EventsAddress is the socket of containerd's ttrpc server (TTRPC_ADDRESS).
	// If it is empty, events go nowhere.
	EventsAddress string
	// Children starts loggers. It does not reap mount helpers, for which the mount package
	// waits.
	Children *proc.Children
	// NewPod makes the pod that the service serves. It is called once.
	NewPod func(pod.Events) Pod
	// Debug tells stage1s that the client asked for debug output.
	Debug bool
	// Stage1 is the choice of the pod's stage1.
	Stage1 *config.Pod
	// Failed, if set, is called with each start that has failed.
	Failed func(disk.FailedStart)
	// DropsEnded says that containerd, when it restarts, deletes a task that
	// refuses to list its processes.
	DropsEnded bool
}

// Service serves the Task API for the apps of one pod.
type Service struct {
	cfg ServiceConfig
	pod Pod
	// asked is the configuration of the pod's sandbox; nil if there is no sandbox.
	asked atomic.Pointer[pod.SandboxConfig]
	// endsWithApps is set while a sandbox that ends with its apps has not begun to end.
	endsWithApps atomic.Bool
	// anAppEnded is set when an app has ended. A sandbox that ends with its apps waits for the first one.
	anAppEnded atomic.Bool
	events     *queue
	opener     *opener

	ids        registry
	unusedOnce sync.Once // guards the log line about unused runtime options

	stop   sync.Once
	ending chan struct{} // a Shutdown was accepted
	done   chan struct{} // a Shutdown was carried out

	workMu sync.Mutex
	closed bool           // guarded by workMu
	work   sync.WaitGroup // nothing is added after closed was set

	debugs    context.Context // ended when the service ends, with the calls of the debug service
	endDebugs context.CancelFunc
	debugMu   sync.Mutex
	debugging sync.WaitGroup // of these calls; none is added after endDebugs; guarded by debugMu
}

// New starts a service; Shutdown or Close ends it.
func New(cfg ServiceConfig) (*Service, error) {
	if cfg.Namespace == "" {
		return nil, fmt.Errorf("task service: no namespace given: %w", errdefs.ErrInvalidArgument)
	}
	if cfg.NewPod == nil || cfg.Children == nil || cfg.Stage1 == nil {
		return nil, fmt.Errorf("task service: no pod, no stage1 or no children given: %w", errdefs.ErrInvalidArgument)
	}
	s := &Service{
		cfg:    cfg,
		events: newQueue(newForwarder(cfg.EventsAddress)),
		opener: newOpener(cfg.Namespace, cfg.Children),
		ending: make(chan struct{}),
		done:   make(chan struct{}),
	}
	s.debugs, s.endDebugs = context.WithCancel(context.Background())
	s.pod = cfg.NewPod(publisher{s})
	return s, nil
}

// Register adds the Task service to a server, under both of its names, the Sandbox
// service, and the service with which rktctl debugs apps.
func (s *Service) Register(srv *ttrpc.Server) {
	desc := &ttrpc.ServiceDesc{Methods: s.methods()}
	srv.RegisterService(serviceV2, desc)
	srv.RegisterService(serviceV3, desc)
	srv.RegisterService(sandbox.Service, &ttrpc.ServiceDesc{Methods: s.sandboxMethods()})
	srv.RegisterService(debug.Service, s.debugService())
}

// Ending is closed before the answer to a Shutdown that ends the service. A client
// that has the answer may start the same group again, and must not get the
// address of a server that is about to end.
func (s *Service) Ending() <-chan struct{} { return s.ending }

// Done is closed when a Shutdown has been carried out: the pod is closed, events
// are delivered, and the server may stop. Close does not close it.
func (s *Service) Done() <-chan struct{} { return s.done }

// Close ends the service and leaves the pod running, because a signal to the shim must not
// end containers (requirements.md#N2). No further app is accepted, and queued events are
// delivered, or dropped when ctx is done. Close waits for everything that the service has
// started.
func (s *Service) Close(ctx context.Context) error {
	s.ids.close()
	s.closeDebugs()
	err := s.finish(ctx)
	s.workMu.Lock()
	s.closed = true
	s.workMu.Unlock()
	s.work.Wait()
	return err
}

// background calls run on a goroutine for which Close waits. After Close it does nothing.
func (s *Service) background(run func()) {
	s.workMu.Lock()
	defer s.workMu.Unlock()
	if !s.closed {
		s.work.Go(run)
	}
}

// finish ends the parts of the service.
func (s *Service) finish(ctx context.Context) error {
	err := s.events.close(ctx)
	s.opener.close(ctx)
	return err
}

// shutdown is a no-op while an app is registered (requirements.md#T16). Otherwise the
// service ends after the answer. The app that the request names does not count if it has
// ended: its client has given it up without deleting it, and no other client will delete
// it. If the request names the sandbox, containerd has no record of that sandbox, and the
// service ends, too.
func (s *Service) shutdown(ctx context.Context, r *task.ShutdownRequest) (*emptypb.Empty, error) {
	if s.ids.isSandbox(r.ID) {
		_, err := s.shutdownSandbox(ctx, &sandbox.ShutdownSandboxRequest{SandboxId: r.ID})
		return empty, err
	}
	id := pod.AppID(r.ID)
	undeleted, closed := s.closeIfEmpty(id)
	if !closed {
		pod.Log(ctx, id, "", nil).Debugf("shutdown of %s: the pod has other containers", id)
		return empty, nil
	}
	s.beginEnd(ctx, id, undeleted)
	return empty, nil
}

// closeIfEmpty refuses further apps if the pod has no app, or only the app id and that one
// has ended. undeleted is set if the app id has ended and no call deletes it.
func (s *Service) closeIfEmpty(id pod.AppID) (undeleted, closed bool) {
	for again := true; again; {
		seen := s.ids.seen()
		st, err := s.pod.Status(id, "")
		undeleted = err == nil && st.State == pod.Stopped && !st.Deleting
		but := pod.AppID("")
		if undeleted {
			but = id
		}
		if !s.pod.Empty(but) {
			return undeleted, false
		}
		closed, again = s.ids.closeIfEmpty(seen)
	}
	return undeleted, closed
}

// beginEnd carries out a Shutdown in the background, while the call is answered. The
// registry must be closed.
func (s *Service) beginEnd(ctx context.Context, id pod.AppID, undeleted bool) {
	s.stop.Do(func() {
		close(s.ending)
		s.background(func() { s.end(context.WithoutCancel(ctx), id, undeleted) })
	})
}

// end carries out a Shutdown.
func (s *Service) end(ctx context.Context, id pod.AppID, undeleted bool) {
	defer close(s.done)
	limit, cancel := context.WithTimeout(ctx, podCloseLimit)
	defer cancel()
	s.closeDebugs()
	if undeleted {
		if _, err := s.pod.Delete(limit, id, ""); err != nil && !errdefs.IsNotFound(err) {
			pod.Log(ctx, id, "", err).Warnf("shutdown: delete the abandoned container %s", id)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		flush, cancel := context.WithTimeout(ctx, flushLimit)
		defer cancel()
		if err := s.finish(flush); err != nil {
			pod.Log(ctx, "", "", err).Error("shutdown")
		}
	})
	if err := s.pod.Close(limit); err != nil {
		pod.Log(ctx, "", "", err).Error("shutdown: close the pod")
	}
	wg.Wait()
}
