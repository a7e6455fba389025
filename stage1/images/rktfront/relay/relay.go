package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/proc/stream"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seqpacket"
)

// Relay copies data between two terminals. The methods of a nil Relay do nothing.
type Relay struct {
	in, out  *os.File
	path     string
	listener seqpacket.Socket
	over     chan struct{} // closed by Close
	taken    chan struct{} // closed when the fields below are set, or will never be
	drained  chan struct{} // closed when all output of the program was copied

	saved  *unix.Termios // the former mode of the caller's terminal
	master *os.File      // of the program's terminal
	slave  *os.File      // keeps it alive while the program has not opened it
}

// New returns a relay that receives the program's terminal on a socket at path, which is
// relative to the working directory. It returns nil unless in and out are terminals.
func New(path string, in, out *os.File) (*Relay, error) {
	for _, f := range []*os.File{in, out} {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
			return nil, nil
		}
	}
	listener, err := seqpacket.ListenStream(path)
	if err != nil {
		return nil, err
	}
	r := &Relay{
		in: in, out: out, path: path, listener: listener,
		over: make(chan struct{}), taken: make(chan struct{}), drained: make(chan struct{}),
	}
	go r.carry()
	return r, nil
}

// Socket returns a path to which the program's terminal is sent. The path is valid for all
// processes of the host, in any working directory.
func (r *Relay) Socket() string { return fmt.Sprintf("/proc/%d/cwd/%s", os.Getpid(), r.path) }

// Size returns the height and width of the caller's terminal, or zeros.
func (r *Relay) Size() (rows, columns uint16) {
	ws, err := unix.IoctlGetWinsize(int(r.in.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return ws.Row, ws.Col
}

// carry receives the program's terminal and copies data until Drain or Close closes it. Its
// other goroutines may wait for a terminal until this process ends.
func (r *Relay) carry() {
	defer close(r.drained)
	err := r.take()
	close(r.taken)
	if err != nil {
		return // there is no program, or the program has no terminal, which is reported elsewhere
	}
	go r.follow()
	go func() {
		_, _ = io.Copy(r.master, r.in)
		_ = r.master.Close() // hang up the program's terminal, as the caller's was
	}()
	_, _ = io.Copy(r.out, r.master)
}

// follow keeps the program's terminal as large as the caller's.
func (r *Relay) follow() {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, unix.SIGWINCH)
	defer signal.Stop(changes)
	for {
		r.resize()
		select {
		case <-changes:
		case <-r.over:
			return
		}
	}
}

// acceptTime is how long the host, or this process, may be short of descriptors before the program's terminal is given up.
const acceptTime = 10 * time.Second

// take receives the program's terminal, and sets the caller's to raw mode.
func (r *Relay) take() error {
	ctx, cancel := context.WithTimeout(context.Background(), acceptTime)
	defer cancel()
	var conn seqpacket.Socket
	// The program's terminal waits in the queue of connections.
	err := stream.Retry(ctx, func() (err error) {
		conn, err = r.listener.Accept()
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	fd, err := conn.ReceiveFile()
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that Close ends a read
		unix.Close(fd)
		return err
	}
	slave, err := proc.Slave(fd)
	if err != nil {
		unix.Close(fd)
		return err
	}
	r.master, r.slave = os.NewFile(uintptr(fd), "terminal of the pod"), os.NewFile(uintptr(slave), "terminal of the pod")
	r.saved, err = proc.MakeRaw(int(r.in.Fd()))
	return err
}

func (r *Relay) resize() {
	conn, err := r.master.SyscallConn()
	if err != nil {
		return
	}
	if ws, err := unix.IoctlGetWinsize(int(r.in.Fd()), unix.TIOCGWINSZ); err == nil {
		_ = conn.Control(func(fd uintptr) { _ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, ws) })
	}
}

// Drain waits until all output of the program was copied. The program must have ended, or
// have failed to start. Drain gives up when ctx ends, because the caller may not read.
func (r *Relay) Drain(ctx context.Context) {
	if r == nil {
		return
	}
	r.finish()
	select {
	case <-r.drained:
	case <-ctx.Done():
	}
}

// finish ends the output after everything that was written. It also ends take, if that
// still waits for a terminal, by a connection on which it sends none. A terminal that was
// sent before is not lost, because connections are accepted in order.
func (r *Relay) finish() {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: r.path})
		unix.Close(fd)
	}
	if err != nil {
		r.listener.Close()
	}
	<-r.taken
	_ = r.slave.Close()
}

// Close ends the relay and restores the mode of the caller's terminal.
func (r *Relay) Close() error {
	if r == nil {
		return nil
	}
	r.finish()
	close(r.over)
	_ = r.master.Close()
	r.listener.Close()
	err := os.Remove(r.path)
	if r.saved != nil {
		err = errors.Join(err, unix.IoctlSetTermios(int(r.in.Fd()), unix.TCSETS, r.saved))
	}
	return err
}
