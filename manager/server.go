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
)

const (
	// closeBudget is for the end of a server that was sent a signal and leaves its
	// pod alone.
	closeBudget = 5 * time.Second
	// endBudget is for the end of a server whose service ends by itself, and its pod
	// with it. Nobody waits for that: the socket is gone, and the connections are
	// closed. The ABI gives `stop`, `stop --force` and `gc` of a stage1 ten seconds
	// each, with five seconds of grace between them.
	endBudget = time.Minute
	// hangUpLimit is how long a client has to take its last answer and hang up.
	hangUpLimit = 2 * time.Second
	// lockLimit is how long a `start` of the group is waited for.
	lockLimit = time.Second
	// answerLimit is how long the answer to a Shutdown waits for those to other calls,
	// and how long the end of the server waits for answers that a busy machine has not
	// written by then. containerd waits three seconds for the answer to a Shutdown.
	answerLimit = time.Second
)

// server serves one group on one socket and ends in order:
//
//	serving ── Ending, signal, unused, Serve failed ──► retired ──► ended
//
// A retired server has no socket any more, so the next `start` of the group
// makes another one. It answers the calls it has, except those that only wait, and
// closes its connections, while its service ends. A SIGTERM cuts that short.
type server struct {
	service  *Service
	socket   string
	inode    os.FileInfo // of the socket; nil if it was not there
	listener net.Listener
	calls    *calls
	conns    *conns
	memory   *memory
	retire   func()
}

func newServer(socket string, listener net.Listener) *server {
	s := &server{
		socket:   socket,
		listener: listener,
		calls:    newCalls(),
		conns:    newConns(),
		memory:   newMemory(),
	}
	s.inode, _ = os.Lstat(socket)
	s.retire = sync.OnceFunc(s.removeSocket)
	return s
}

// run serves until there is a reason to end.
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
	s.memory.touch()

	var sweeping sync.WaitGroup
	sweeping.Go(func() { s.sweep(ctx) })
	failure := s.wait(ctx, signals, served)
	s.end(ctx, t, signals)
	sweeping.Wait()
	for range served {
		// Not returning before Serve has.
	}
	return failure
}

// wait returns when the server has to end, with an error only if it cannot
// serve.
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
			log.G(ctx).Warn("nobody has created a container and nobody is connected: ending")
			return nil
		case err := <-served:
			if s.isEnding() { // then it was retire that stopped it
				return nil
			}
			return fmt.Errorf("serve: %w", err)
		}
	}
}

// intercept is around every call.
func (s *server) intercept(ctx context.Context, u ttrpc.Unmarshaler, info *ttrpc.UnaryServerInfo, method ttrpc.Method) (any, error) {
	if s.isEnding() && methodName(info.FullMethod) == "Connect" {
		// It asks whether somebody is here, and an answer would say so. The end of
		// the connection, which is near, says the truth, as that of runc's shim does.
		// Other calls are answered: that a container is not there is an answer.
		<-ctx.Done()
		return nil, ctx.Err()
	}
	done := s.calls.begin(info.FullMethod)
	// ttrpc cancels the context of a call when it has put the answer in line to be
	// written to the connection. Before that the call is not over.
	defer context.AfterFunc(ctx, done)
	s.memory.touch()
	response, err := method(ctx, u)
	if s.isEnding() {
		s.beforeFinalAnswer(ctx, info.FullMethod)
	}
	return response, err
}

// beforeFinalAnswer is called before a call is answered while the server ends.
func (s *server) beforeFinalAnswer(ctx context.Context, method string) {
	// The client that has the answer may look whether the socket is gone.
	s.retire()
	if !isShutdown(method) {
		return
	}
	// containerd closes the connection when it has the answer to a Shutdown. Other
	// calls on the same connection, a second Delete or a signal, would fail with
	// "ttrpc: closed" although their answers are a moment away.
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

// end takes at most closeBudget, or endBudget, whatever hangs.
func (s *server) end(ctx context.Context, t *ttrpc.Server, signals *signals) {
	s.memory.stop()
	s.retire()
	if !s.isEnding() {
		ctx, cancel := context.WithTimeout(ctx, closeBudget)
		defer cancel()
		if err := s.service.Close(ctx); err != nil {
			log.G(ctx).WithError(err).Warn("the service did not end in order")
		}
		s.hangUp(ctx, t)
		return
	}
	limit, cancel := context.WithTimeout(ctx, closeBudget)
	defer cancel()
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

// sweep removes what killed calls of `start` have left beside the server's own socket.
func (s *server) sweep(ctx context.Context) {
	if err := sweepSockets(filepath.Dir(s.socket)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.G(ctx).WithError(err).Warn("sockets that others have left cannot all be removed")
	}
}

// hangUp answers the calls that are in progress, waits a moment for the clients to hang
// up, and closes the connections that are left.
func (s *server) hangUp(ctx context.Context, t *ttrpc.Server) {
	s.calls.drain(ctx)
	leave, cancel := context.WithTimeout(ctx, hangUpLimit)
	defer cancel()
	s.conns.drain(leave)
	write, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	_ = t.Shutdown(write) // of calls that only wait there may be no answer
	_ = t.Close()
	s.conns.close() // ttrpc does not while a call is in progress
}

// removeSocket removes the socket, if it is still this server's, and accepts
// nobody any more.
func (s *server) removeSocket() {
	defer s.listener.Close()
	ctx, cancel := context.WithTimeout(context.Background(), lockLimit)
	defer cancel()
	// Without the lock it is done, too: a `start` that hangs must not keep us.
	if lock, err := lockGroup(ctx, s.socket); err == nil {
		defer lock.release()
	}
	now, err := os.Lstat(s.socket)
	if errors.Is(err, fs.ErrNotExist) || s.inode == nil || !os.SameFile(now, s.inode) {
		return
	}
	os.Remove(s.socket)
}
