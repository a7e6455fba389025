package fork

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seqpacket"
)

// Start starts p and returns its pid when it has executed its program. The process is a
// child of this process; the caller reaps it. If ctx ends before the exec, or a step
// fails, Start kills and reaps everything that it has made.
//
// If the kernel has refused a step, the error is an *Error.
func Start(ctx context.Context, p *Process) (int, error) {
	// The child's end is blocking.
	ours, theirs, err := seqpacket.Pair("a socket for a new process")
	if err != nil {
		return 0, err
	}
	defer ours.Close()
	l, err := lay(p, theirs)
	if err != nil {
		theirs.Close()
		return 0, err
	}
	pid, errno := l.fork()
	theirs.Close()
	if errno != 0 {
		return 0, p.failure(&report{step: stepClone, errno: uint32(errno)})
	}
	// A deadline in the past ends every read. Only this goroutine kills and reaps the
	// child, so the pid cannot belong to another process.
	defer context.AfterFunc(ctx, func() { _ = ours.SetReadDeadline(time.Unix(1, 0)) })()

	b := &starting{p: p, words: ours.File, pid: pid}
	if p.twice() {
		b.helper, b.pid = pid, 0
	}
	defer b.watching.Wait() // short, because the helper has been reaped
	if err := b.attend(); err != nil {
		b.undo()
		if ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			err = context.Cause(ctx)
		}
		return 0, err
	}
	return b.pid, nil
}

// starting is the parent's side of a start.
type starting struct {
	p      *Process
	words  *os.File
	helper int // the process that makes the second clone, until it is reaped
	pid    int // of the process itself, once it is known

	watching sync.WaitGroup // of watch, which ends with the helper
}

// attend does the parent's part, until the exec.
func (b *starting) attend() error {
	if b.helper != 0 {
		if err := b.watch(); err != nil {
			return err
		}
		r, err := b.read()
		if err != nil {
			return err
		}
		if r == nil {
			return errHelper
		}
		b.pid = int(r.value)
	}
	if b.p.New&unix.CLONE_NEWUSER != 0 {
		if err := b.writeMaps(); err != nil {
			return err
		}
	}
	if b.p.awaited() {
		// An error means that the child has ended; the next read returns the reason.
		_, _ = b.words.Write([]byte{1})
	}
	if b.helper != 0 {
		ws := reap(b.helper) // it ends without waiting for anything
		b.helper = 0
		if ws.Signaled() { // watch then ends the reads of reports
			return errHelper
		}
	}
	_, err := b.read()
	return err
}

// errHelper is the error if the first of two children was killed.
var errHelper = errors.New("the process that was to join namespaces has been killed")

// watch ends the reads of the socket when the helper is killed. Otherwise a read would
// wait for ever if the helper is killed before it has reported the second child: that
// child waits for this process and holds the other end of the socket open.
func (b *starting) watch() error {
	fd, err := unix.PidfdOpen(b.helper, unix.O_NONBLOCK)
	if err != nil {
		return fmt.Errorf("open a pidfd of the process that joins namespaces: %w", err)
	}
	pidfd := os.NewFile(uintptr(fd), "pidfd of a helper")
	b.watching.Go(func() {
		defer pidfd.Close()
		if helperKilled(pidfd) {
			shut(b.words)
		}
	})
	return nil
}

// helperKilled waits for the end of a child without reaping it, and reports whether a
// signal was its end.
func helperKilled(pidfd *os.File) (killed bool) {
	const exited = 1 // CLD_EXITED; all other codes name a signal
	_ = proc.WaitRead(pidfd, func(fd int) (err error) {
		var info unix.Siginfo
		for err = unix.EINTR; err == unix.EINTR; {
			err = unix.Waitid(unix.P_PIDFD, fd, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		}
		if err == nil && info.Signo == 0 {
			return unix.EAGAIN
		}
		killed = err == nil && info.Code != exited // an error means that attend has reaped it
		return err
	})
	return killed
}

// shut makes a socket receive nothing more after the packets that were sent already.
func shut(words *os.File) {
	_ = proc.Control(words, func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RD) })
}

// read returns nil at end of file, and the failure of a step as an error.
func (b *starting) read() (*report, error) {
	var buf [reportSize + 1]byte
	n, err := b.words.Read(buf[:])
	if errors.Is(err, unix.ECONNRESET) {
		// The child has ended without reading our byte. The kernel reports that before the child's
		// last report; read again.
		n, err = b.words.Read(buf[:])
	}
	if err == io.EOF || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the report of a new process: %w", err)
	}
	return b.p.parse(buf[:n])
}

// parse decodes a report. It returns the report of a child's pid, or the failure of a step
// as an error.
func (p *Process) parse(packet []byte) (*report, error) {
	if len(packet) != reportSize {
		return nil, fmt.Errorf("a report of a new process has %d bytes", len(packet))
	}
	r := &report{
		step:  step(binary.NativeEndian.Uint32(packet[0:])),
		errno: binary.NativeEndian.Uint32(packet[4:]),
		value: binary.NativeEndian.Uint32(packet[8:]),
	}
	switch {
	case r.step != cloned:
		return nil, p.failure(r)
	case r.value == 0 || r.value > math.MaxInt32: // kill(2) takes these for many processes
		return nil, fmt.Errorf("a new process reports the pid %d", r.value)
	}
	return r, nil
}

// writeMaps gives a new user namespace its users and groups. This process has the rights
// of the parent namespace, so it may write any map, and setgroups stays allowed.
func (b *starting) writeMaps() error {
	dir := "/proc/" + strconv.Itoa(b.pid)
	if err := writeMap(dir+"/gid_map", b.p.GIDMappings); err != nil {
		return fmt.Errorf("map groups of a user namespace: %w", err)
	}
	if err := writeMap(dir+"/uid_map", b.p.UIDMappings); err != nil {
		return fmt.Errorf("map users of a user namespace: %w", err)
	}
	return nil
}

func writeMap(path string, m []IDMapping) error {
	var text []byte
	for _, l := range m {
		text = strconv.AppendUint(text, uint64(l.Inside), 10)
		text = append(text, ' ')
		text = strconv.AppendUint(text, uint64(l.Outside), 10)
		text = append(text, ' ')
		text = strconv.AppendUint(text, uint64(l.Size), 10)
		text = append(text, '\n')
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(text) // the kernel accepts all of it in one write, or none
	return err
}

// undo kills and reaps the processes of this start. A second child whose pid did not arrive
// reads end of file and ends by itself.
func (b *starting) undo() {
	b.words.Close()
	for _, pid := range []int{b.helper, b.pid} {
		if pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			reap(pid)
		}
	}
}

func reap(pid int) (ws syscall.WaitStatus) {
	for {
		if _, err := syscall.Wait4(pid, &ws, 0, nil); err != syscall.EINTR {
			return ws
		}
	}
}
