package manager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/log"
	"github.com/containerd/ttrpc"

	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
	"github.com/rkt/containerd-shim-rkt-v1/proc/rest"
)

const (
	// closeBudget is for the end of a server that was sent a signal. It does not end
	// its pod.
	closeBudget = 5 * time.Second
	// endBudget is for the end of a server whose service and pod end by themselves. No
	// client waits for it, because the socket was removed and the connections are closed.
	// The ABI gives `stop`, `stop --force` and `gc` of a stage1 ten seconds each, with five
	// seconds of grace between them.
	endBudget = time.Minute
	// drainLimit is how long the calls in progress may take after a signal.
	drainLimit = 2 * time.Second
	// hangUpLimit is how long clients may take to read their last answers and to close
	// their connections.
	hangUpLimit = 2 * time.Second
	// lockLimit is how long the server waits for a `start` that holds the group's lock.
	lockLimit = time.Second
	// answerLimit is how long the answer to a Shutdown waits for the answers to other
	// calls, and how long the end of the server waits for answers that were not yet
	// written. containerd waits three seconds for the answer to a Shutdown.
	answerLimit = time.Second
)

// server serves one group on one socket and ends in order:
//
//	serving ── Ending, signal, unused, Serve failed ──► retired ──► ended
//
// A retired server has removed its socket, so the next `start` of the group makes
// another server. The retired server answers the calls in progress, except Wait and
// WaitSandbox, and closes its connections, while its service ends. SIGTERM ends it at once.
type server struct {
	service  *Service
	socket   string
	inode    os.FileInfo // of the socket; nil if it did not exist
	listener net.Listener
	calls    *calls
	conns    *conns
	memory   *rest.Memory
	retire   func()
}

func newServer(socket string, listener net.Listener) *server {
	s := &server{
		socket:   socket,
		listener: listener,
		calls:    newCalls(),
		conns:    newConns(),
		memory:   rest.NewMemory(freshMemory, memoryGrowth),
	}
	s.inode, _ = os.Lstat(socket)
	s.retire = sync.OnceFunc(s.removeSocket)
	return s
}

// run serves until the service ends, a signal comes, or the server stays unused.
func (s *server) run(ctx context.Context) error {
	signals := notifySignals()
	defer signals.stop()
	t, err := ttrpc.NewServer(ttrpc.WithServerHandshaker(s.conns), ttrpc.WithUnaryServerInterceptor(s.intercept))
	if err != nil {
		return err
	}
	s.service.Register(t)
	served := make(chan error, 1)
	go func() {
		defer close(served)
		served <- t.Serve(ctx, s.listener)
	}()
	log.G(ctx).Debug("serving")
	s.memory.Touch()

	var sweeping sync.WaitGroup
	sweeping.Go(func() { s.sweep(ctx) })
	failure := s.wait(ctx, signals, served)
	s.end(ctx, t, signals)
	sweeping.Wait()
	for range served {
		// Wait until Serve has returned.
	}
	return failure
}

// wait returns when the server has to end. It returns an error only if Serve has failed.
func (s *server) wait(ctx context.Context, signals *signals, served <-chan error) error {
	unused := newUnusedWatch(s.conns, s.calls)
	defer unused.stop()
	for {
		select {
		case <-s.service.Ending:
			log.G(ctx).Debug("shutting down")
			return nil
		case sig := <-signals.terminate:
			log.G(ctx).WithField("signal", sig).Info("ending, and leaving apps alone")
			return nil
		case <-signals.dump:
			dumpStacks(ctx)
		case <-s.conns.changed:
			unused.update()
		case <-unused.expired():
			if !unused.update() {
				continue
			}
			log.G(ctx).Warn("no container was created and no client is connected: ending")
			return nil
		case err := <-served:
			if s.isEnding() { // retire has closed the listener
				return nil
			}
			return fmt.Errorf("serve: %w", err)
		}
	}
}

// intercept wraps every call.
func (s *server) intercept(ctx context.Context, u ttrpc.Unmarshaler, info *ttrpc.UnaryServerInfo, method ttrpc.Method) (any, error) {
	if s.isEnding() && methodName(info.FullMethod) == "Connect" {
		// Connect asks whether the server is running. This one is ending, so Connect gets
		// no answer and fails when the connection is closed, as with runc's shim. Other
		// calls are answered: NotFound is the right answer for their containers.
		<-ctx.Done()
		return nil, ctx.Err()
	}
	done := s.calls.begin(info.FullMethod)
	// ttrpc cancels the context of a call when it has queued the answer. Count the call
	// until then.
	defer context.AfterFunc(ctx, done)
	s.memory.Touch()
	response, err := method(ctx, u)
	if s.isEnding() {
		s.beforeFinalAnswer(ctx, info.FullMethod)
	}
	return response, err
}

// beforeFinalAnswer is called before each answer of a server that ends.
func (s *server) beforeFinalAnswer(ctx context.Context, method string) {
	// The client may check that the socket is gone as soon as it has the answer.
	s.retire()
	if !isShutdown(method) {
		return
	}
	// containerd closes the connection when it has the answer to a Shutdown. Other
	// calls in progress on the same connection, such as a second Delete or a Kill, would
	// fail with "ttrpc: closed", so their answers are sent first.
	limit, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	s.calls.drainOthers(limit)
}

func (s *server) isEnding() bool {
	select {
	case <-s.service.Ending:
		return true
	default:
		return false
	}
}

// end ends the server. It takes at most closeBudget after a signal, otherwise endBudget.
func (s *server) end(ctx context.Context, t *ttrpc.Server, signals *signals) {
	s.memory.Stop()
	s.retire()
	limit, cancel := context.WithTimeout(ctx, closeBudget)
	defer cancel()
	if !s.isEnding() { // a signal
		// What the calls in progress publish is delivered. One may be a Shutdown.
		drain, cancel := context.WithTimeout(limit, drainLimit)
		s.calls.drain(drain)
		cancel()
	}
	if !s.isEnding() {
		if err := s.service.Close(limit); err != nil {
			log.G(ctx).WithError(err).Warn("the service did not end in order")
		}
		s.hangUp(limit, t)
		return
	}
	s.hangUp(limit, t)
	s.sweep(ctx)
	select {
	case <-s.service.Done:
	case sig := <-signals.terminate:
		log.G(ctx).WithField("signal", sig).Warn("the pod has not ended: what is left of it is for the next one to collect")
	case <-time.After(endBudget):
		log.G(ctx).Warnf("the pod has not ended within %s: what is left of it is for the next one to collect", endBudget)
	}
}

// sweep removes the files that killed calls of `start` have left in the directory of the
// socket.
func (s *server) sweep(ctx context.Context) {
	if err := early.SweepSockets(filepath.Dir(s.socket)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.G(ctx).WithError(err).Warn("sockets that others have left cannot all be removed")
	}
}

// hangUp answers the calls in progress, waits up to hangUpLimit until the clients have
// closed their connections, and closes those that are left.
func (s *server) hangUp(ctx context.Context, t *ttrpc.Server) {
	s.calls.drain(ctx)
	leave, cancel := context.WithTimeout(ctx, hangUpLimit)
	defer cancel()
	s.conns.drain(leave)
	write, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	_ = t.Shutdown(write) // calls that only wait may get no answer
	_ = t.Close()
	s.conns.close() // ttrpc does not while a call is in progress
}

// removeSocket closes the listener, and removes the socket if it is still this server's.
func (s *server) removeSocket() {
	defer s.listener.Close()
	ctx, cancel := context.WithTimeout(context.Background(), lockLimit)
	defer cancel()
	// After lockLimit the socket is removed without the lock: a `start` may hang.
	if lock, err := early.LockGroup(ctx, s.socket); err == nil {
		defer lock.Release()
	}
	now, err := os.Lstat(s.socket)
	if errors.Is(err, fs.ErrNotExist) || s.inode == nil || !os.SameFile(now, s.inode) {
		return
	}
	os.Remove(s.socket)
}
