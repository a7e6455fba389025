package rktabi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/appc/spec/schema/types"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
)

const (
	// attachLimit is how long a stage1 may take, from the start of an app, to say where
	// its streams are.
	attachLimit = 10 * time.Second
	// outputGrace is how long a stream may be silent, once its app has ended, before it
	// is taken to have ended, too.
	outputGrace = 5 * time.Second
)

// carrier connects the streams of an app with what stage 0 would have given to the app,
// were it that one's to start it. rkt's stage1s connect an app with a multiplexer in the
// pod, whose sockets are in rkt/iottymux/APP; those that have another way are attached
// to by their entrypoint.
//
// A terminal is the stage1's. Stage 0 has one of its own before it, raw: what the client
// is given as console.
type carrier struct {
	terminal bool
	byName   bool               // the app's systemd opens them, and there is no multiplexer
	opened   *opened            // then, what it opens
	local    *immutable.Streams // of a terminal
	files    [3]*os.File        // the app's ends; nil for what leads nowhere
	closing  sync.Once
	closed   chan struct{} // closed with the streams
	carried  chan struct{} // closed when carry has returned

	mu    sync.Mutex
	front *os.File // this side's terminal, whose size the app's is to have
	tty   *os.File // the app's terminal, once it is there; both until the app has ended
}

// newCarrier keeps the client's files until the app is started: they are the pod's to
// close.
func newCarrier(stdio [3]*os.File, terminal bool, p *specs.Process, byName bool) (*carrier, error) {
	r := &carrier{terminal: terminal, byName: byName, closed: make(chan struct{}), carried: make(chan struct{})}
	if terminal {
		var err error
		if r.local, err = immutable.OpenStreams([3]*os.File{}, true, p); err != nil {
			return nil, err
		}
		r.files = r.local.Files
		if byName { // it is the app's
			return r, nil
		}
		if _, err := proc.MakeRaw(int(r.files[0].Fd())); err != nil {
			r.close()
			return nil, fmt.Errorf("make a terminal: %w", err)
		}
		if r.front, err = duplicate(r.files[0]); err != nil {
			r.close()
			return nil, err
		}
		return r, nil
	}
	for i, f := range stdio {
		if f == nil {
			continue
		}
		var err error
		if r.files[i], err = duplicate(f); err != nil {
			r.close()
			return nil, err
		}
	}
	return r, nil
}

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// take hands the console over, if there is one.
func (r *carrier) take() *os.File {
	if r.local == nil {
		return nil
	}
	return r.local.Take()
}

// close ends the streams for the client. It is idempotent.
func (r *carrier) close() {
	r.closing.Do(func() {
		r.opened.close()
		close(r.closed)
		r.letGo()
		if r.local != nil {
			r.local.Close()
			return
		}
		for _, f := range r.files {
			if f != nil {
				_ = f.Close()
			}
		}
	})
}

// modes are the annotations that say where an app's streams are.
func (r *carrier) modes() types.Annotations {
	var list types.Annotations
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		mode := "stream"
		switch {
		case r.byName:
			mode = "null"
		case r.terminal:
			mode = "tty"
		case r.files[i] == nil:
			mode = "null"
		}
		list.Set(types.ACIdentifier("coreos.com/rkt/stage2/"+name), mode)
	}
	return list
}

// carry connects the streams from before the app is started until they have ended. It
// closes them.
func (r *carrier) carry(s *mutable, c pod.Call, a *mutableApp) {
	defer close(r.carried)
	defer r.close()
	if r.files == [3]*os.File{} {
		return
	}
	if r.byName {
		r.carryOpened(a.over)
		return
	}
	m, err := s.findMux(c.Dir, c.Request.App, a)
	if errors.Is(err, stage1.ErrEnded) {
		return
	}
	if err == nil {
		m.leader = c.Leader
		err = r.connect(m, a.over)
	}
	if err != nil {
		r.attach(s, c, a)
	}
}

// findMux waits until the app's multiplexer says where it listens. An image without one
// has not made a place for it by the time that the app runs.
func (s *mutable) findMux(dir, app string, a *mutableApp) (*mux, error) {
	place := filepath.Join(dir, stage1.RktDir, muxDir, app)
	files, err := watchDirs(place)
	if err != nil {
		<-a.settled
		if files, err = watchDirs(place); err != nil {
			return nil, err
		}
	}
	defer files.close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-a.settled:
		case <-ctx.Done():
			return
		}
		limit := time.NewTimer(attachLimit)
		defer limit.Stop()
		select {
		case <-limit.C:
		case <-a.streams.closed: // its start has failed
		case <-ctx.Done():
		}
		cancel()
	}()
	var m *mux
	// The end of the app is none of the search: what it has written is there still.
	err = files.until(ctx, s.run.Call.Ended, func() (_ bool, err error) {
		m, err = readMux(place, app)
		return err == nil, nil // it may be half written
	})
	return m, err
}

// attach connects the streams by the attach entrypoint, which carries them itself.
func (r *carrier) attach(s *mutable, c pod.Call, a *mutableApp) {
	<-a.settled
	select {
	case <-r.closed:
		return
	default:
	}
	k, err := s.NewCall(c, abi.Attach)
	if err != nil {
		return
	}
	flag := func(name string, wanted bool) string { return fmt.Sprintf("--%s=%t", name, wanted) }
	in := func(i int) bool { return !r.terminal && r.files[i] != nil }
	k.Args = []string{
		"--action=custom-attach", flag("tty-in", r.terminal), flag("tty-out", r.terminal),
		flag("stdin", in(0)), flag("stdout", in(1)), flag("stderr", in(2)),
		"--app=" + c.Request.App, flag("debug", c.Request.Debug),
	}
	k.Stdio = r.files
	if err := k.Start(); err != nil {
		_ = k.Fail(err) // which puts it into the journal
		return
	}
	after := lingers(k.Child.PID(), k.Stdio)
	defer after.close()
	r.close()
	select {
	case <-k.Ended:
	case <-a.over:
		after.await(k)
	}
	k.Release()
	k.Leave()
}

// resize gives the app's terminal the size of this side's, now or once it is there. One
// that its systemd opens by name is this side's.
func (r *carrier) resize() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resizeLocked()
}

// behind takes up the app's terminal, from where it may be. It stays open as long as the
// app lives: if it were closed before the app has opened it, the multiplexer would take
// that for its end.
func (r *carrier) behind(ptys ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pty := range ptys {
		fd, err := unix.Open(pty, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		if _, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err != nil {
			_ = unix.Close(fd)
			continue
		}
		r.tty = os.NewFile(uintptr(fd), pty)
		_ = r.resizeLocked() // without a size a terminal still is one
		return
	}
}

// letGo gives both terminals up.
func (r *carrier) letGo() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range []*os.File{r.tty, r.front} {
		if f != nil {
			_ = f.Close()
		}
	}
	r.tty, r.front = nil, nil
}

func (r *carrier) resizeLocked() error {
	if r.tty == nil || r.front == nil {
		return nil
	}
	size, err := unix.IoctlGetWinsize(int(r.front.Fd()), unix.TIOCGWINSZ)
	if err == nil && *size != (unix.Winsize{}) {
		err = unix.IoctlSetWinsize(int(r.tty.Fd()), unix.TIOCSWINSZ, size)
	}
	if err != nil {
		return fmt.Errorf("terminal of the app: %w", err)
	}
	return nil
}
