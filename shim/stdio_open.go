package shim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/log"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/proc/stream"
)

// clientPause is the time that a client has for opening its end of a fifo for output, before its
// process is made without it, and for reading what is in the fifo, before it learns that the process
// has ended.
const clientPause = time.Second

// opener opens the streams of processes. It owns what is longer-lived than a stream: the
// memory for copying, and loggers that are being ended.
type opener struct {
	namespace string
	children  *proc.Children
	buffers   *buffers
	pause     time.Duration // clientPause, unless a test sets it

	mu      sync.Mutex      // held while leave is closed, and while a logger is added
	loggers sync.WaitGroup  // none is added after leave was closed
	leave   chan struct{}   // closed when the shim no longer watches the loggers of running apps
	hurry   context.Context // ended when loggers that are being ended must be killed
	hasten  context.CancelFunc
}

func newOpener(namespace string, children *proc.Children) *opener {
	hurry, hasten := context.WithCancel(context.Background())
	return &opener{
		namespace: namespace,
		children:  children,
		buffers:   newBuffers(),
		pause:     clientPause,
		leave:     make(chan struct{}),
		hurry:     hurry,
		hasten:    hasten,
	}
}

// close waits for the loggers of closed streams until ctx is done, then kills
// them. Loggers of apps that keep running are left alone: they go on reading the apps'
// output, but if one of them dies, it gets no successor.
func (o *opener) close(ctx context.Context) {
	o.mu.Lock()
	select {
	case <-o.leave:
	default:
		close(o.leave)
	}
	o.mu.Unlock()
	stop := context.AfterFunc(ctx, o.hasten)
	defer stop()
	o.loggers.Wait()
	o.hasten()
}

// watch calls run in the background, and close waits for it. It returns false if close was called.
func (o *opener) watch(run func()) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case <-o.leave:
		return false
	default:
		o.loggers.Go(run)
		return true
	}
}

// owner is the app for which streams are opened.
type owner struct {
	app      pod.AppID
	exec     pod.ExecID // empty for the app's first process
	bundle   string     // of the app
	uid, gid uint32     // the user who must be able to open /dev/stdout; 0, 0: root, nothing to do
}

// log returns the log for a line about the process's streams.
func (o *owner) log(err error) *log.Entry {
	return pod.Log(context.Background(), o.app, o.exec, err)
}

// open opens all streams of a process. Until ctx is done it waits for a logger that is not
// ready yet, for loggerReady at most, and for the clients of all output, for clientPause at most.
// On failure nothing stays open.
func (o *opener) open(ctx context.Context, st streams, own owner) (_ *stdio, err error) {
	if st.terminal {
		st.stderr = ""
	}
	s := &stdio{buffers: o.buffers, own: &own, patience: clientPause, gone: make(chan struct{}), carried: make(chan struct{})}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if err := o.openInput(s, st, own); err != nil {
		return nil, fmt.Errorf("open stdin: %w", err)
	}
	if err := o.openOutputs(ctx, s, st, own); err != nil {
		return nil, err
	}
	for fd, f := range s.files {
		if fd == 0 && s.in.feeder == nil {
			continue // it is the client's own, such as /dev/null
		}
		if err := chown(f, own.uid, own.gid); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (o *opener) openInput(s *stdio, st streams, own owner) error {
	t, err := parseTarget(st.stdin)
	if err != nil {
		return err
	}
	s.in, err = openStdin(t, st.terminal)
	s.files[0] = s.in.child
	return err
}

// openOutputs opens stdout and stderr. If both name the same target, the target is
// opened once. A logger that is named only for stdout gets stderr, too, because loggers
// have a descriptor for it.
func (o *opener) openOutputs(ctx context.Context, s *stdio, st streams, own owner) error {
	out, err := parseTarget(st.stdout)
	if err != nil {
		return fmt.Errorf("open stdout: %w", err)
	}
	errs, err := parseTarget(st.stderr)
	if err != nil {
		return fmt.Errorf("open stderr: %w", err)
	}
	clients := time.Now().Add(o.pause)
	if st.terminal {
		if err := o.openTerminal(ctx, s, out, own, clients); err != nil {
			return fmt.Errorf("open stdout: %w", err)
		}
		return nil
	}
	if st.stderr == st.stdout || out.kind == toLogger && errs.kind == toNothing {
		if err := o.openOutput(ctx, s, out, own, clients, 1, 2); err != nil {
			return fmt.Errorf("open stdout and stderr: %w", err)
		}
		return nil
	}
	if err := o.openOutput(ctx, s, out, own, clients, 1); err != nil {
		return fmt.Errorf("open stdout: %w", err)
	}
	if err := o.openOutput(ctx, s, errs, own, clients, 2); err != nil {
		return fmt.Errorf("open stderr: %w", err)
	}
	return nil
}

// openOutput connects descriptors of the process with a target. Until clients it waits for the
// client of a fifo.
func (o *opener) openOutput(ctx context.Context, s *stdio, t target, own owner, clients time.Time, fds ...int) error {
	switch t.kind {
	case toNothing:
		return nil
	case toLogger:
		l, w, err := o.startLogger(ctx, t, own, inherited, fds...)
		if err != nil {
			return err
		}
		s.loggers = append(s.loggers, l)
		for _, fd := range fds {
			s.files[fd] = w[fd]
		}
		return nil
	}
	k, err := openSink(ctx, t, clients)
	if err != nil {
		return err
	}
	s.sinks = append(s.sinks, k)
	for _, fd := range fds {
		r, w, err := pipe(ours, inherited)
		if err != nil {
			return err
		}
		k.use()
		s.files[fd] = w
		s.outputs = append(s.outputs, &pump{src: r, dst: k, buffers: o.buffers, own: s.own})
	}
	return nil
}

// openTerminal prepares for the output of a console that does not exist yet. Until clients it waits
// for the client of a fifo.
func (o *opener) openTerminal(ctx context.Context, s *stdio, t target, own owner, clients time.Time) error {
	s.hangup = &stream.Hangup{}
	k := &sink{name: "nowhere"}
	switch t.kind {
	case toNothing: // the output must be read, or the process would block
	case toLogger:
		l, w, err := o.startLogger(ctx, t, own, ours, 1)
		if err != nil {
			return err
		}
		s.loggers = append(s.loggers, l)
		k = &sink{name: t.path, w: w[1]}
	default:
		var err error
		if k, err = openSink(ctx, t, clients); err != nil {
			return err
		}
	}
	k.use()
	s.sinks = append(s.sinks, k)
	s.outputs = []*pump{{dst: k, buffers: o.buffers, own: s.own, hangup: s.hangup}}
	return nil
}
