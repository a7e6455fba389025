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

// Start starts p and returns its pid when the process has executed its program. The process
// is a child of this process, and the caller reaps it. If ctx ends before the exec, or a
// step fails, Start kills and reaps everything that it has made.
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
	// A deadline in the past ends every read. Killing and reaping the child is left to this
	// goroutine, so the pid cannot belong to another process.
	defer context.AfterFunc(ctx, func() { _ = ours.SetReadDeadline(time.Unix(1, 0)) })()

	b := &starting{p: p, words: ours.File, pid: pid}
	if p.twice() {
		b.helper, b.pid = pid, 0
	}
	defer b.watching.Wait() // does not wait long, because the helper was reaped
	if err := b.attend(); err != nil {
		b.undo()
		if ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			err = context.Cause(ctx)
		}
		return 0, err
	}
	return b.pid, nil
}

// starting is the parent's part in a start.
type starting struct {
	p      *Process
	words  *os.File
	helper int // the first child, which makes the second clone; 0 once it is reaped
	pid    int // of the new process, once it is known

	watching sync.WaitGroup // waits for watch, which ends with the helper
}

// attend does the parent's part of the start, until the exec.
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
		// An error means that the child has ended. The next read then returns the reason.
		_, _ = b.words.Write([]byte{1})
	}
	if b.helper != 0 {
		ws := reap(b.helper) // the helper ends by itself now
		b.helper = 0
		if ws.Signaled() { // in this case watch ends the reads of reports
			return errHelper
		}
	}
	_, err := b.read()
	return err
}

// errHelper is the error if the first of two children was killed.
var errHelper = errors.New("the process that was to join namespaces has been killed")

// watch ends the reads of the socket when the helper is killed. Without it, a read would
// wait for ever if the helper is killed before it has reported the second child: that child
// waits for this process and has the other end of the socket open.
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
// signal has killed it.
func helperKilled(pidfd *os.File) (killed bool) {
	const exited = 1 // CLD_EXITED; all other codes mean a signal
	_ = proc.WaitRead(pidfd, func(fd int) (err error) {
		var info unix.Siginfo
		for err = unix.EINTR; err == unix.EINTR; {
			err = unix.Waitid(unix.P_PIDFD, fd, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		}
		if err == nil && info.Signo == 0 {
			return unix.EAGAIN
		}
		killed = err == nil && info.Code != exited // an error means that attend has reaped the helper
		return err
	})
	return killed
}

// shut ends the receiving side of a socket. Packets that were sent before can still be
// read.
func shut(words *os.File) {
	_ = proc.Control(words, func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RD) })
}

// read returns nil at end of file, and the failure of a step as an error.
func (b *starting) read() (*report, error) {
	var buf [reportSize + 1]byte
	n, err := b.words.Read(buf[:])
	if errors.Is(err, unix.ECONNRESET) {
		// The child has ended without reading our byte. The kernel reports that before it
		// delivers the child's last report, so read again.
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
	case r.value == 0 || r.value > math.MaxInt32: // kill(2) treats these values as groups of processes
		return nil, fmt.Errorf("a new process reports the pid %d", r.value)
	}
	return r, nil
}

// writeMaps writes the id maps of a new user namespace. This process has the rights of the
// parent namespace, so it may write any map, and setgroups(2) remains allowed in the
// namespace.
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
	_, err = f.Write(text) // the kernel accepts the whole text in one write, or nothing
	return err
}

// undo kills and reaps the processes of this start. If the pid of a second child is not
// known, that child reads end of file and ends by itself.
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
