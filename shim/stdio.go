package shim

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/proc/stream"
)

// stdio connects the streams of one process with the targets that its client has named.
//
//	                    terminal                     no terminal
//	stdin   fifo        pump to the pty's master     pump that splices, pipe
//	stdout  fifo        pump from the master         pipe, pump that splices
//	        file://     pump from the master         pipe, pump that copies
//	        binary://   pump to the logger's pipe    the process writes the logger's pipe
//	stderr              not used                     as stdout
//
// It holds no lock while it waits for anything.
type stdio struct {
	buffers *buffers
	own     *owner
	in      stdin
	// outputs are the pumps that Drain waits for. With a terminal there is one,
	// without a source until Begin.
	outputs  []*pump
	patience time.Duration // of Settle
	sinks    []*sink
	loggers  []*logger
	hangup   *stream.Hangup // of a terminal

	mu      sync.Mutex
	files   [3]*os.File // for the process; nil after it was started with them
	begun   bool
	closed  bool
	wanted  bool        // a client or Start has asked for the input
	fed     bool        // the input is being moved
	pause   *time.Timer // after it the input counts as wanted
	console *os.File    // nil before Begin and after the end of its output
	size    *pod.Size   // of a Resize before there was a console

	running sync.WaitGroup // all pumps
	gone    chan struct{}  // closed when the process has ended, and by Close
	carried chan struct{}  // closed when all outputs have ended
	left    int            // outputs that have not ended
}

var _ pod.Stdio = (*stdio)(nil)

// Files returns the process's ends of the streams.
func (s *stdio) Files() [3]*os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files
}

// Begin starts to move the streams. After Close it fails with
// errdefs.ErrFailedPrecondition.
func (s *stdio) Begin(console *os.File) error {
	if console != nil {
		var err error
		if console, err = pollConsole(console); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.begun {
		proc.CloseFiles(console)
		return fmt.Errorf("streams are closed, or carried already: %w", errdefs.ErrFailedPrecondition)
	}
	s.begun = true
	proc.CloseFiles(s.files[:]...)
	s.files = [3]*os.File{}
	if console != nil {
		if err := s.takeConsoleLocked(console); err != nil {
			return err
		}
	}
	s.startLocked()
	s.feedLocked()
	if !s.fed && (s.in.fifo != nil || s.in.src != nil) {
		s.pause = time.AfterFunc(stdinPause, s.feed)
	}
	return nil
}

// takeConsoleLocked connects the terminal's pumps with the console.
func (s *stdio) takeConsoleLocked(console *os.File) error {
	if s.hangup == nil {
		proc.CloseFiles(console)
		return fmt.Errorf("a console for a process without a terminal: %w", errdefs.ErrInvalidArgument)
	}
	s.console = console
	if s.size != nil {
		if err := resize(console, *s.size); err != nil {
			s.own.log(err).Warn("the size that was asked for before the terminal existed")
		}
	}
	for _, p := range s.outputs {
		p.src = console
	}
	return nil
}

// startLocked starts the pumps that have a source.
func (s *stdio) startLocked() {
	var ready []*pump
	for _, p := range s.outputs {
		if p.src != nil {
			ready = append(ready, p)
		}
	}
	s.left = len(ready)
	if s.left == 0 {
		close(s.carried)
	}
	for _, p := range ready {
		s.running.Go(func() {
			p.run()
			s.hangUp()
			s.outputEnded()
			<-s.gone
			p.end()
		})
	}
}

// hangUp closes a terminal whose output has ended.
func (s *stdio) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	proc.CloseFiles(s.console)
	s.console = nil
}

// outputEnded counts down when an output has ended.
func (s *stdio) outputEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left--; s.left == 0 {
		close(s.carried)
	}
}

// ended is called when the process has ended. It does not block. Clients see the end of outputs from now on, and not
// when a process closes its stdout: containerd's CRI takes the end of an output for the end of an exec, and
// stops reading the client's input, so that most of "kubectl exec -i POD -- sh -c 'cat >FILE' <FILE" was lost.
func (s *stdio) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endedLocked()
	if s.hangup != nil && s.console != nil {
		s.hangup.End(s.console)
	}
}

func (s *stdio) endedLocked() {
	select {
	case <-s.gone:
	default:
		close(s.gone)
	}
}

// Resize sets the size of the terminal, now or in Begin.
func (s *stdio) Resize(size pod.Size) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hangup == nil || s.closed {
		return nil
	}
	if s.console == nil {
		s.size = &size
		return nil
	}
	return resize(s.console, size)
}

// Settle waits until the client has read what the process had written, and until outputs that no process has open
// have ended, until clientPause after the process's end at most. containerd's client closes its ends of the fifos soon
// after the answer to Wait, whether or not it has read them.
//
// The end may be a stage1's word, and the host's clock may have been set since: no call waits longer than clientPause.
func (s *stdio) Settle(ctx context.Context, end time.Time) {
	s.ended()
	limit := time.Now().Add(s.patience)
	if since := end.Add(s.patience); since.Before(limit) {
		limit = since
	}
	await(ctx, limit, s.onTheWay)
}

// await waits until no bytes are on their way, until the time limit, or until ctx is done. The kernel
// has no event for a pipe that becomes empty, so await looks.
func await(ctx context.Context, limit time.Time, onTheWay func() bool) {
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	for pause := 50 * time.Microsecond; ctx.Err() == nil && onTheWay(); pause = min(2*pause, 20*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func (s *stdio) onTheWay() bool {
	s.mu.Lock()
	moving := s.begun && !s.closed
	s.mu.Unlock()
	return moving && slices.ContainsFunc(s.outputs, (*pump).onTheWay)
}

// Drain waits until the outputs have ended and loggers have read them. Before
// Begin there is nothing to wait for.
func (s *stdio) Drain(ctx context.Context) {
	s.mu.Lock()
	begun := s.begun
	s.mu.Unlock()
	if !begun {
		return
	}
	s.ended()
	select {
	case <-s.carried:
	case <-ctx.Done():
		return
	}
	for _, l := range s.loggers {
		l.drain(ctx)
	}
}

// Close ends everything at once. It only begins to end loggers; the service waits for them.
func (s *stdio) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.endedLocked()
	proc.CloseFiles(s.files[:]...)
	s.files = [3]*os.File{}
	console := s.console
	if s.pause != nil {
		s.pause.Stop()
	}
	s.mu.Unlock()

	s.in.close()
	proc.CloseFiles(console)
	// Close the sinks first: a pump that waits for room in its sink keeps its source in
	// use, and the closing of the source would wait for that pump.
	for _, k := range s.sinks {
		k.close()
	}
	for _, p := range s.outputs {
		proc.CloseFiles(p.src)
	}
	s.running.Wait()
	for _, l := range s.loggers {
		l.stop()
	}
	return nil
}
