package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// ErrLinesLost says that a log was replaced so fast that the file that Follow was reading was removed.
var ErrLinesLost = errors.New("the log was replaced faster than it was read, so lines may be missing")

// Follow writes the log of an app, and what the app adds to it, until the app has ended and
// everything is written, or until ctx ends. If lines may be lost, it goes on, and at the end returns
// an error that unwraps to ErrLinesLost. If the pod's server ends before the app, nobody writes the
// log any more, and Follow returns an error.
func (p *Pod) Follow(ctx context.Context, name string, to io.Writer) (err error) {
	if err := checkName(name); err != nil {
		return err
	}
	f := &follower{app: p.app(name), to: to}
	// Watch first: a change after the first reading is announced.
	if err := f.watch(p.path(logsDir)); err != nil {
		return err
	}
	defer f.close()
	return f.run(ctx)
}

// run writes the log until its end, or until ctx ends.
func (f *follower) run(ctx context.Context) error {
	ended, stop := f.end(ctx)
	defer stop()
	var again <-chan time.Time
	for over := false; ; {
		if err := f.copy(); err != nil {
			return err
		}
		if over {
			if !f.written() {
				// Nobody has the log open, so nothing is added after this reading.
				return errors.Join(f.copy(), f.problem())
			}
			// The kernel announces that a file is closed a moment before it counts one writer less.
			again = time.After(closeGrace)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case f.ending = <-ended:
			over, ended = true, nil
		case <-f.changes:
		case <-again:
		}
	}
}

// closeGrace is how long Follow waits between two looks whether the server has closed the log of an
// app that has ended.
const closeGrace = 100 * time.Millisecond

// follower reads a log whose files are replaced meanwhile.
type follower struct {
	app  *app
	to   io.Writer
	key  string   // of the app that is followed
	file *os.File // that is read now; nil if there is none yet
	lost bool
	// exit is the app's exit code, once it has ended. It is nil if the app was removed.
	exit *int64
	// ending is why nothing is added to the log any more. It is nil if the app has ended.
	ending error

	inotify *os.File
	changes chan struct{} // has an element if something in the directory has changed
	reading chan struct{} // closed at the end of the goroutine that reads inotify
}

// watch announces changes in the directory of the logs.
func (f *follower) watch(dir string) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	f.inotify = os.NewFile(uintptr(fd), "inotify")
	f.changes, f.reading = make(chan struct{}, 1), make(chan struct{})
	const events = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_MOVED_TO | unix.IN_CLOSE_WRITE | unix.IN_DELETE_SELF | unix.IN_ONLYDIR
	if _, err := unix.InotifyAddWatch(fd, dir, events); err != nil {
		f.inotify.Close()
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	go func() {
		defer close(f.reading)
		buf := make([]byte, 64<<10)
		for {
			if _, err := f.inotify.Read(buf); err != nil {
				return // close
			}
			select {
			case f.changes <- struct{}{}:
			default: // it is announced already
			}
		}
	}()
	return nil
}

func (f *follower) close() {
	f.inotify.Close()
	<-f.reading
	if f.file != nil {
		f.file.Close()
	}
}

// end waits for the end of the app. The channel gets an error if the server has ended before the
// app. An app that was removed has ended.
func (f *follower) end(ctx context.Context) (ended chan error, stop func()) {
	ended = make(chan error, 1)
	// Connect first: the state of an app whose server has ended does not change any more.
	server, noServer := f.app.pod.server(ctx)
	switch state, err := f.look(ctx); {
	case err != nil || state.final():
		ended <- err
	case noServer != nil:
		ended <- fmt.Errorf("app %s is %s, and nothing is written to its log: %w", f.app.name, state, noServer)
	default:
		go func() { // stop ends it
			ended <- f.wait(context.WithoutCancel(ctx), server)
		}()
	}
	if noServer != nil {
		return ended, func() {}
	}
	return ended, server.close
}

// wait asks the server for the end of the app. The server of a pod that ends with its apps may have
// gone before it has answered.
func (f *follower) wait(ctx context.Context, server *server) error {
	r, err := server.Wait(ctx, &task.WaitRequest{ID: f.app.name})
	switch err = native(err); {
	case err == nil:
		code := int64(r.ExitStatus)
		f.exit = &code
	case gone(err):
		if state, lookErr := f.look(ctx); lookErr != nil || state.final() || errdefs.IsNotFound(err) {
			return lookErr
		}
	}
	return err
}

// look returns the app's state, and keeps its exit code if it has ended. An app that was removed is
// Deleting.
func (f *follower) look(ctx context.Context) (State, error) {
	st, err := f.app.pod.Status(ctx, f.app.name)
	if err == nil {
		var r appRecord
		if r, err = f.app.read(); err == nil {
			f.key, f.exit = r.Key, st.ExitCode
		}
	}
	if errdefs.IsNotFound(err) {
		return Deleting, nil
	}
	return st.State, err
}

// skip passes over what the log has now.
func (f *follower) skip() (err error) {
	f.file, err = os.Open(f.app.log())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = f.file.Seek(0, io.SeekEnd)
	}
	return err
}

// copy writes what there is now.
func (f *follower) copy() error {
	for {
		if f.file != nil {
			if _, err := io.Copy(f.to, f.file); err != nil {
				return err
			}
		}
		next, err := f.next()
		if err != nil || next == nil {
			return err
		}
		if f.file != nil {
			// The server has written to the old file for the last time before it made the next.
			_, err = io.Copy(f.to, f.file)
			f.file.Close()
		}
		if f.file = next; err != nil {
			return err
		}
	}
}

// next opens the file that follows the present one, or the oldest one if there is no present one.
// It returns nil if there is none yet.
func (f *follower) next() (*os.File, error) {
	if f.file == nil {
		return f.oldest()
	}
	for {
		at, err := f.place()
		if at == 0 || err != nil {
			return nil, err
		}
		if at < 0 {
			f.lost = true
			return f.oldest()
		}
		next, err := os.Open(older(f.app.log(), at-1))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil // it is announced when it is made
		}
		if err != nil {
			return nil, err
		}
		// The server renames the oldest file first. So if the present one has its name still, the
		// other was opened by the right name.
		if now, err := f.place(); err == nil && now == at {
			return next, nil
		}
		next.Close()
	}
}

// place says which of the older files the present one is: 0 is the log itself, and -1 means that it
// was removed. A file only moves to higher places, so a search in that order finds it.
func (f *follower) place() (int, error) {
	mine, err := f.file.Stat()
	if err != nil {
		return 0, err
	}
	for i := range LogFiles {
		if st, err := os.Lstat(older(f.app.log(), i)); err == nil && os.SameFile(st, mine) {
			return i, nil
		}
	}
	return -1, nil
}

// oldest opens the oldest file. It returns nil if there is none.
func (f *follower) oldest() (*os.File, error) {
	for i := LogFiles - 1; i >= 0; i-- {
		file, err := os.Open(older(f.app.log(), i))
		if !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return nil, nil
}

// older returns the path of the i-th older file of a log; the 0th is the log.
func older(log string, i int) string {
	if i == 0 {
		return log
	}
	return fmt.Sprintf("%s.%d", log, i)
}

// written reports whether the server has the log open for writing: it writes the last lines after
// the app's end. The kernel gives no lease for reading on such a file. A file system without leases
// counts as one on which nothing is written any more, and so does the log of a later app of this name.
func (f *follower) written() bool {
	if f.file == nil || f.ending != nil {
		return false
	}
	if r, err := f.app.read(); f.key != "" && err == nil && r.Key != f.key {
		return false
	}
	_, err := unix.FcntlInt(f.file.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if err == nil {
		_, _ = unix.FcntlInt(f.file.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	}
	return errors.Is(err, unix.EAGAIN)
}

// problem returns the error of a log that was written as far as possible.
func (f *follower) problem() error {
	switch {
	case f.file == nil && f.key == "" && f.ending == nil:
		return fmt.Errorf("pod %s has no log of an app %q: %w", f.app.pod.uuid, f.app.name, errdefs.ErrNotFound)
	case f.lost:
		return errors.Join(f.ending, fmt.Errorf("app %s: %w", f.app.name, ErrLinesLost))
	}
	return f.ending
}
