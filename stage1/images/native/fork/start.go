package fork

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
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
	b, err := begin(ctx, p, (*starting).executed)
	if err != nil {
		return 0, err
	}
	b.words.Close()
	return b.pid, nil
}

// Begun is a process that executes its Program, or begins its Idle, next.
type Begun struct {
	PID int
	b   *starting
}

// Begin starts p, which has a Program or an Idle, and returns when the process exists in its namespaces
// and needs its parent no more. It may then be stopped for any time, by the freezer or by its
// files. In all else Begin is like Start. The caller closes the result, and reaps the process.
func Begin(ctx context.Context, p *Process) (*Begun, error) {
	b, err := begin(ctx, p, func(*starting) error { return nil })
	if err != nil {
		return nil, err
	}
	return &Begun{b.pid, b}, nil
}

// ErrEnded is the error for a process that has ended before its program was executed, and
// has not reported a reason.
var ErrEnded = errors.New("the process has ended")

// Executed waits until the process has executed its program, and returns the master of its
// terminal, or nil if it has none. If a step has failed, the error is an *Error, and the process
// ends by itself. Executed does not end before the process does one or the other.
func (b *Begun) Executed() (master *os.File, err error) {
	executed := false
	master, b.b.master = b.b.master, nil
	for {
		r, file, err := b.b.receive()
		switch {
		case file != nil && b.b.p.outside(): // a helper has sent all that there is
			file.Close()
			err = errForged
		case file != nil:
			master.Close()
			master = file
		}
		switch {
		case err == nil && r == nil && executed:
			return master, nil
		case err == nil && r == nil:
			err = ErrEnded
		}
		if err != nil {
			master.Close()
			return nil, err
		}
		executed = r.step == executing
	}
}

// receive is read, and also returns the descriptor that has come with the report.
func (b *starting) receive() (r *report, file *os.File, err error) {
	var buf [reportSize + 1]byte
	n, fds, err := proc.ReceiveFrom(b.words, buf[:], 1)
	if err == unix.ECONNRESET { // as in read
		n, fds, err = proc.ReceiveFrom(b.words, buf[:], 1)
	}
	if len(fds) > 0 {
		file = os.NewFile(uintptr(fds[0]), "a file of a new process")
	}
	switch err {
	case nil:
		r, err = b.p.parse(buf[:n])
	case io.EOF:
		err = nil
	}
	return r, file, err
}

// Close forgets the process.
func (b *Begun) Close() {
	b.b.words.Close()
	b.b.master.Close() // unless Executed has returned it
}

// begin makes a process and calls until when the process needs its parent no more. The caller
// closes words of the result.
func begin(ctx context.Context, p *Process, until func(*starting) error) (*starting, error) {
	// The child's end is blocking.
	ours, theirs, err := seqpacket.Pair("a socket for a new process")
	if err != nil {
		return nil, err
	}
	l, s, err := lay(p, theirs)
	if err != nil {
		theirs.Close()
		ours.Close()
		return nil, err
	}
	pid, errno := l.fork()
	s.close()
	theirs.Close()
	if errno != 0 {
		ours.Close()
		return nil, p.failure(&report{step: stepClone, errno: uint32(errno)})
	}
	// A deadline in the past ends every read. Killing and reaping the child is left to this
	// goroutine, so the pid cannot belong to another process.
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { _ = ours.SetReadDeadline(time.Unix(1, 0)); close(expired) })

	b := &starting{p: p, words: ours.File, pid: pid}
	if p.twice() {
		b.helper, b.pid = pid, 0
	}
	if err = b.attend(ctx); err == nil {
		err = until(b)
	}
	if !stop() {
		<-expired // undo sets another deadline
	}
	if err == nil {
		return b, nil
	}
	b.undo()
	if ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		err = context.Cause(ctx)
	}
	return nil, err
}

// starting is the parent's part in a start.
type starting struct {
	p        *Process
	words    *os.File
	helper   int      // the child that makes the next clone; 0 once the last one is reaped
	second   int      // the helper that is in the cgroup
	inCgroup bool     // helper is that one
	forged   bool     // there are two reports of the process's pid
	early    []int    // pids that it has reported before its own was known
	pid      int      // of the new process, once it is known
	master   *os.File // of its terminal, or nil
}

// attend does the parent's part of the start.
func (b *starting) attend(ctx context.Context) error {
	if b.helper != 0 {
		if err := b.follow(ctx); err != nil {
			return err
		}
	}
	if b.p.New&unix.CLONE_NEWUSER != 0 {
		if err := b.writeMaps(); err != nil {
			return err
		}
	}
	if b.p.Born != nil {
		if err := b.p.Born(b.pid); err != nil {
			return cmp.Or(b.said(), err) // the process may have ended, and have said why
		}
	}
	if b.p.awaited() {
		// An error means that the child has ended. The next read then returns the reason.
		_, _ = b.words.Write([]byte{1})
	}
	return nil
}

// follow waits until the helpers have ended, and learns the pid of the process from the last one. A
// process of the container that has taken the new process over can send reports as well, but it cannot
// take that of the helper away. So there are two then.
func (b *starting) follow(ctx context.Context) error {
	if b.p.thrice() {
		if err := b.findSecond(); err != nil {
			return err
		}
		reap(b.helper) // ends by itself
		b.helper, b.inCgroup = b.second, true
	}
	if err := ended(ctx, b.helper); err != nil {
		return err
	}
	killed := reap(b.helper).Signaled()
	b.helper = 0
	if killed {
		shut(b.words) // the process has the other end of the socket, too, and waits
	}
	pid, err := b.cloned()
	switch {
	case err == nil && b.clonedAgain():
		b.forged = true
		return errForged
	case err == nil:
		b.pid = pid
	}
	if err == nil && killed {
		return errHelper
	}
	return err
}

// findSecond reads the pid of the second helper. The reports of the second may come before it.
func (b *starting) findSecond() error {
	for b.second == 0 {
		r, file, err := b.receive()
		if file != nil {
			b.master.Close()
			b.master = file
		}
		switch {
		case err != nil:
			return err
		case r == nil:
			return errHelper
		case r.step == helping:
			b.second = int(r.value)
		case r.step == cloned:
			b.early = append(b.early, int(r.value))
		}
	}
	return nil
}

// cloned reads the pid that a helper reports, and the master of a terminal, if one comes before.
func (b *starting) cloned() (pid int, err error) {
	if len(b.early) > 0 {
		pid, b.early = b.early[0], b.early[1:]
		return pid, nil
	}
	for {
		r, file, err := b.receive()
		if file != nil {
			b.master.Close()
			b.master = file
		}
		switch {
		case err != nil:
			return 0, err
		case r == nil:
			return 0, errHelper
		case r.step == cloned:
			return int(r.value), nil
		case r.step != terminal:
			return 0, fmt.Errorf("a new process is %s before it exists", r.step)
		}
	}
}

// clonedAgain reports whether the next packet, if there is one yet, has a pid.
func (b *starting) clonedAgain() (again bool) {
	if len(b.early) > 0 {
		return true
	}
	_ = proc.Control(b.words, func(fd int) error {
		var buf [reportSize + 1]byte
		n, _, err := unix.Recvfrom(fd, buf[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		again = err == nil && n > 0 && step(binary.NativeEndian.Uint32(buf[:])) == cloned
		return nil
	})
	return again
}

// said returns the failure that the process has reported, if it has reported one yet.
func (b *starting) said() (failure error) {
	_ = proc.Control(b.words, func(fd int) error {
		var buf [reportSize + 1]byte
		if n, _, err := unix.Recvfrom(fd, buf[:], unix.MSG_DONTWAIT); err == nil && n > 0 {
			_, failure = b.p.parse(buf[:n])
		}
		return nil
	})
	return failure
}

// executed waits for the exec.
func (b *starting) executed() error {
	_, err := b.read()
	return err
}

// errHelper is the error if a helper was killed.
var errHelper = errors.New("the process that was to join namespaces has been killed")

// errForged is the error if another process has reported a pid.
var errForged = errors.New("a process of the container has taken over the one that was made")

// ended waits for the end of a child without reaping it. The child may be in a cgroup that is frozen.
func ended(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.O_NONBLOCK)
	if err != nil {
		return fmt.Errorf("open a pidfd of the process that joins namespaces: %w", err)
	}
	pidfd := os.NewFile(uintptr(fd), "pidfd of a helper")
	defer pidfd.Close()
	stop := context.AfterFunc(ctx, func() { _ = pidfd.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	return proc.WaitRead(pidfd, func(fd int) (err error) {
		var info unix.Siginfo
		for err = unix.EINTR; err == unix.EINTR; {
			err = unix.Waitid(unix.P_PIDFD, fd, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		}
		if err == nil && info.Signo == 0 {
			return unix.EAGAIN
		}
		return err
	})
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
	case r.step == executing, r.step == terminal, r.step == procfs, r.step == waiting:
		return r, nil
	case r.step != cloned && r.step != helping:
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

// helperTime is how long a helper has to report the second child although the caller has gone.
const helperTime = time.Second

// undo kills and reaps the processes of this start. If the pid of one is not known, undo waits for it,
// because that process may be frozen. If no helper reports it, the process reads end of file and ends
// by itself.
func (b *starting) undo() {
	if b.p.twice() && b.pid == 0 && !b.forged && b.words.SetReadDeadline(time.Now().Add(helperTime)) == nil {
		b.findLast()
	}
	b.words.Close()
	b.master.Close()
	end(b.helper)
	end(b.pid)
}

// findLast looks for the pid of the process in the reports of the helpers.
func (b *starting) findLast() {
	if b.p.thrice() {
		if !b.inCgroup {
			if b.findSecond() != nil {
				return
			}
			end(b.helper)
			b.helper = b.second
		}
		end(b.helper) // may be frozen; its report is there, or never will be
		b.helper = 0
		shut(b.words)
	}
	if pid, err := b.cloned(); err == nil && !b.clonedAgain() {
		b.pid = pid
	}
}

// end kills and reaps a child, unless pid is 0.
func end(pid int) {
	if pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		reap(pid)
	}
}

func reap(pid int) (ws syscall.WaitStatus) {
	for {
		if _, err := syscall.Wait4(pid, &ws, 0, nil); err != syscall.EINTR {
			return ws
		}
	}
}
