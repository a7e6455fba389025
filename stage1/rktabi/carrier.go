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
	// attachLimit is how long after the start of an app the multiplexer may take to name
	// its sockets.
	attachLimit = 10 * time.Second
	// outputGrace is how long an output may stay open and silent after the end of its app.
	// Then it counts as ended.
	outputGrace = 5 * time.Second
)

// carrier moves data between the client's streams and an app that the stage1 starts. rkt's
// stage1s connect an app in one of three ways: to a multiplexer in the pod, whose sockets
// are in rkt/iottymux/APP; to fifos that the pod's systemd opens by name; or by the image's
// attach entrypoint.
//
// The stage1 makes the terminal of an app. Stage 0 makes a second terminal in raw mode, and
// passes its master to the client as the console.
type carrier struct {
	terminal bool
	byName   bool               // systemd opens the streams by name
	opened   *unitStreams       // the streams that systemd opens, if byName
	local    *immutable.Streams // stage 0's terminal
	files    [3]*os.File        // the app's ends of the client's streams; nil where it has none
	closing  sync.Once
	closed   chan struct{} // closed by close
	carried  chan struct{} // closed when carry has returned

	mu    sync.Mutex
	front *os.File // stage 0's terminal, whose size the app's gets
	tty   *os.File // the app's terminal, while the app runs
}

// newCarrier duplicates the client's files, because the pod closes the originals.
func newCarrier(stdio [3]*os.File, terminal bool, p *specs.Process, byName bool) (_ *carrier, err error) {
	r := &carrier{terminal: terminal, byName: byName, closed: make(chan struct{}), carried: make(chan struct{})}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	for i, f := range stdio {
		if f == nil || terminal {
			continue
		}
		if r.files[i], err = duplicate(f, false); err != nil {
			return nil, err
		}
	}
	if !terminal {
		return r, nil
	}
	if r.local, err = immutable.OpenStreams([3]*os.File{}, true, p); err != nil {
		return nil, err
	}
	r.files = r.local.Files
	if byName { // the app itself uses this terminal
		return r, nil
	}
	if _, err := proc.MakeRaw(int(r.files[0].Fd())); err != nil {
		return nil, fmt.Errorf("make a terminal: %w", err)
	}
	r.front, err = duplicate(r.files[0], false)
	return r, err
}

// duplicate returns another descriptor of a file. With nonblock, closing it ends its reads
// and writes.
func duplicate(f *os.File, nonblock bool) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil && nonblock {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// take returns the console, if there is one, and leaves it to the caller.
func (r *carrier) take() *os.File {
	if r.local == nil {
		return nil
	}
	return r.local.Take()
}

// close closes the client's side of the streams. It is idempotent.
func (r *carrier) close() {
	r.closing.Do(func() {
		r.opened.close()
		close(r.closed)
		r.closeTerminals()
		if r.local != nil {
			r.local.Close()
			return
		}
		proc.CloseFiles(r.files[:]...)
	})
}

// modes returns the annotations with which rkt's stage1s connect the streams of an app.
func (r *carrier) modes() types.Annotations {
	var list types.Annotations
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		mode := "stream"
		switch {
		case r.byName, !r.terminal && r.files[i] == nil:
			mode = "null"
		case r.terminal:
			mode = "tty"
		}
		list.Set(types.ACIdentifier("coreos.com/rkt/stage2/"+name), mode)
	}
	return list
}

// carry connects the streams before the app is started, moves data until they have ended,
// and closes them.
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

// findMux waits until the app's multiplexer has named its sockets. If the image has no
// multiplexer, the directory of the sockets does not exist when app/start has returned, and
// findMux returns an error.
func (s *mutable) findMux(dir, app string, a *mutableApp) (*mux, error) {
	place := filepath.Join(stage1.RktDir, muxDir, app)
	files, err := watchDirs(dir, place)
	if err != nil {
		<-a.settled
		if files, err = watchDirs(dir, place); err != nil {
			return nil, err
		}
	}
	defer files.close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-a.settled:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(attachLimit):
		case <-a.streams.closed: // app/start has failed
		case <-ctx.Done():
		}
	}()
	var m *mux
	// Go on after the end of the app, because its output can still be read.
	err = files.until(ctx, s.run.Call.Ended, func() (_ bool, err error) {
		m, err = readMux(dir, app)
		return err == nil, nil // the file may be half written
	})
	return m, err
}

// attach executes the attach entrypoint, which moves the data itself.
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
		_ = k.Fail(err) // puts the error into the journal
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

// resize sets the size of the app's terminal to that of stage 0's, once the app's terminal
// exists. For a terminal that systemd opens by name there is nothing to do, because it is
// stage 0's own.
func (r *carrier) resize() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resizeLocked()
}

// keepTerminal keeps the app's terminal, if it was found, open while the app runs, because the multiplexer would end if stage 0
// closed the terminal before the app has opened it.
func (r *carrier) keepTerminal(tty *os.File) {
	if tty == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tty = tty
	_ = r.resizeLocked() // a terminal without a size works
}

func (r *carrier) closeTerminals() {
	r.mu.Lock()
	defer r.mu.Unlock()
	proc.CloseFiles(r.tty, r.front)
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
