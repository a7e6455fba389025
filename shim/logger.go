package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

const (
	// loggerReady is how long a logger may take to get ready (requirements.md#I4).
	loggerReady = 10 * time.Second
	// loggerStop is how long a logger has between SIGTERM and SIGKILL.
	loggerStop = 12 * time.Second
	// loggerGrace is how long Drain waits for a logger to end by itself after the end of
	// its input. After that Close sends SIGTERM, which some loggers wait for.
	loggerGrace = 2 * time.Second
	// loggerCrashes is how many runs in a row may last less than loggerYoung.
	loggerCrashes = 3
	loggerYoung   = time.Second
	// loggerPause is the pause after the first start of a successor that failed. Each further one is four times as long.
	loggerPause = 500 * time.Millisecond
)

// logger is a program that a client named to read a process's output
// (binary://). The process writes to the program's pipes directly, so that a busy shim
// delays neither of them.
//
// The shim keeps the read ends open, too. If the program dies while there may be more
// to read, a successor gets these read ends, with all unread output. If successors keep
// ending, the output is thrown away. The process neither blocks nor is killed by
// SIGPIPE (containerd#11511).
type logger struct {
	argv     []string
	env      []string
	own      *owner // of the output; without a bundle the program needs no note on disk
	strict   bool
	opener   *opener
	read     [3]*os.File // by descriptor of the process; plain, shared with the program
	released chan struct{}
	done     chan struct{}

	ctx    context.Context // ended by stop
	cancel context.CancelFunc
}

// loggerProcess is one run of the program.
type loggerProcess struct {
	child *proc.Child
	began time.Time
}

// startLogger starts the program of a target and waits until it is ready. It returns the
// write ends of the program's pipes, by descriptor of the process. The program always gets
// two pipes. If a descriptor is not in fds, its pipe has no writer and the program reads
// end of file.
func (o *opener) startLogger(ctx context.Context, t target, own owner, mode end, fds ...int) (_ *logger, w [3]*os.File, err error) {
	l := &logger{
		argv:     append([]string{t.path}, t.args...),
		env:      append(os.Environ(), "CONTAINER_ID="+string(own.app), "CONTAINER_NAMESPACE="+o.namespace),
		own:      &own,
		strict:   t.strict,
		opener:   o,
		released: make(chan struct{}),
		done:     make(chan struct{}),
	}
	defer func() {
		if err != nil {
			proc.CloseFiles(w[:]...)
			proc.CloseFiles(l.read[:]...)
		}
	}()
	for _, fd := range []int{1, 2} {
		if l.read[fd], w[fd], err = pipe(inherited, mode); err != nil {
			return nil, w, err
		}
	}
	ready, cancel := context.WithTimeout(ctx, loggerReady)
	defer cancel()
	p, err := l.start(ready)
	if err != nil {
		return nil, w, err
	}
	keep := map[int]bool{}
	for _, fd := range fds {
		keep[fd] = true
	}
	for fd := range w {
		if !keep[fd] {
			proc.CloseFiles(w[fd])
			w[fd] = nil
		}
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if !o.watch(func() { l.run(p) }) {
		l.cancel()
		l.kill(p)
		return nil, w, fmt.Errorf("start logger %s: the shim is ending: %w", l.argv[0], errdefs.ErrUnavailable)
	}
	return l, w, nil
}

// start runs the program and waits until it is ready or ctx is done.
func (l *logger) start(ctx context.Context) (*loggerProcess, error) {
	readyR, readyW, err := pipe(ours, inherited)
	if err != nil {
		return nil, err
	}
	defer readyR.Close()
	p, err := l.spawn(readyW)
	proc.CloseFiles(readyW)
	if err != nil {
		return nil, fmt.Errorf("start logger %s: %w", l.argv[0], err)
	}
	if err := l.awaitReady(ctx, readyR); err != nil {
		l.kill(p)
		return nil, fmt.Errorf("start logger %s: %w", l.argv[0], err)
	}
	return p, nil
}

// spawn executes the program with its descriptors 3, 4 and 5.
func (l *logger) spawn(ready *os.File) (*loggerProcess, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	child, err := l.opener.children.StartThen(l.argv, &os.ProcAttr{
		Env:   l.env,
		Files: []*os.File{null, null, null, l.read[1], l.read[2], ready},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}, func(c *proc.Child, _ proc.Exit) { forgetLogger(l.own.bundle, c.PID()) })
	if err != nil {
		return nil, err
	}
	p := &loggerProcess{child: child, began: time.Now()}
	if l.own.bundle == "" {
		return p, nil
	}
	if err := recordLogger(l.own.bundle, child.PID()); err != nil {
		l.kill(p)
		return nil, fmt.Errorf("note its process: %w", err)
	}
	return p, nil
}

// kill ends a program that will not be used.
func (l *logger) kill(p *loggerProcess) {
	_ = p.child.KillGroup()
	<-p.child.Done()
}

// awaitReady waits until the program reports ready. In the first version of the protocol
// it does so by end of file, which a crash causes as well; in the second by a byte.
func (l *logger) awaitReady(ctx context.Context, ready *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	n, err := ready.Read(make([]byte, 1))
	switch {
	case n > 0:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("wait for it to get ready: %w", context.Cause(ctx))
	case l.strict:
		return errors.New("it closed descriptor 5 without writing to it, so it is not ready")
	}
	return nil
}

// run watches the program, and starts successors, until the input has ended, stop is
// called or the shim ends.
func (l *logger) run(p *loggerProcess) {
	defer close(l.done)
	for crashes := 0; ; {
		select {
		case <-l.ctx.Done():
			l.release()
			l.terminate(p)
			return
		case <-l.opener.leave:
			l.release()
			return
		case <-p.child.Done():
		}
		if l.finished() {
			l.release()
			return
		}
		if crashes++; time.Since(p.began) > loggerYoung {
			crashes = 1
		}
		l.own.log(nil).Warnf("logger %s ended while there was output to come", l.argv[0])
		if p = l.successor(crashes); p == nil {
			l.discard()
			l.release()
			return
		}
	}
}

// successor starts the program again, unless it has crashed too often. A start that fails counts as a crash, and is repeated a moment
// later: the program may be just being replaced, or the host may lack memory.
func (l *logger) successor(crashes int) *loggerProcess {
	watched, cancel := l.watched()
	defer cancel()
	for pause := loggerPause; crashes <= loggerCrashes && watched.Err() == nil; crashes++ {
		ready, cancel := context.WithTimeout(watched, loggerReady)
		p, err := l.start(ready)
		cancel()
		if err == nil {
			return p
		}
		if watched.Err() == nil {
			l.own.log(err).Error("a logger that died has no successor yet")
		}
		_ = proc.Sleep(watched, pause)
		pause *= 4
	}
	return nil
}

// watched returns a context that ends with the streams, or when the shim no longer watches loggers.
func (l *logger) watched() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(l.ctx)
	go func() {
		select {
		case <-l.opener.leave:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// finished reports whether everything was read and no process can write more.
func (l *logger) finished() bool {
	for _, f := range l.read[1:] {
		p := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		if err != nil || n == 0 || p[0].Revents&unix.POLLIN != 0 || p[0].Revents&unix.POLLHUP == 0 {
			return false
		}
	}
	return true
}

// discard reads the output in place of the program, until its end, until stop, or until the shim no longer watches loggers.
func (l *logger) discard() {
	if l.ctx.Err() != nil {
		return
	}
	l.own.log(nil).Errorf("logger %s keeps ending: the output is thrown away", l.argv[0])
	ctx, cancel := l.watched()
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, f := range l.read[1:] {
		// Open the pipe again: this process reads it in nonblocking mode, through the
		// runtime's poller, and the program's own open file must stay in blocking mode.
		src, err := openPolled(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_RDONLY)
		if err != nil {
			l.own.log(err).Error("output without a logger cannot be read")
			continue
		}
		p := &pump{src: src, dst: &sink{name: "nowhere"}, buffers: l.opener.buffers, own: l.own}
		stop := context.AfterFunc(ctx, func() { proc.CloseFiles(src) })
		wg.Go(func() {
			defer stop()
			defer src.Close()
			p.run()
		})
	}
}

// release closes the read ends.
func (l *logger) release() {
	proc.CloseFiles(l.read[:]...)
	close(l.released)
}

// terminate sends SIGTERM to the program, and kills it if it does not end.
func (l *logger) terminate(p *loggerProcess) {
	_ = p.child.Signal(unix.SIGTERM) // it may have ended
	limit := time.NewTimer(loggerStop)
	defer limit.Stop()
	select {
	case <-p.child.Done():
		return
	case <-limit.C:
		l.own.log(nil).Warnf("logger %s does not end %s after SIGTERM: killed", l.argv[0], loggerStop)
	case <-l.opener.hurry.Done():
	}
	_ = p.child.KillGroup()
	<-p.child.Done()
}

// drain waits until the program has read everything and ended, for loggerGrace at most.
func (l *logger) drain(ctx context.Context) {
	limit := time.NewTimer(loggerGrace)
	defer limit.Stop()
	select {
	case <-l.done:
	case <-limit.C:
	case <-ctx.Done():
	}
}

// stop begins to end the program, and returns when the shim has closed the read ends. The
// service waits for the end of the program.
func (l *logger) stop() {
	l.cancel()
	<-l.released
}
