package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/wire"
)

// listen makes the socket of the pod's entrypoints. Only root may connect.
func listen() (socket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return socket{}, fmt.Errorf("make the supervisor's socket: %w", err)
	}
	s, err := adopt(fd, wire.Socket)
	if err != nil {
		return socket{}, err
	}
	mask := unix.Umask(0o177)
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: wire.Socket})
	unix.Umask(mask)
	if err == nil {
		err = unix.Listen(fd, 128)
	}
	if err != nil {
		s.Close()
		return socket{}, fmt.Errorf("listen on %s: %w", wire.Socket, err)
	}
	return s, nil
}

// accept returns the next connection.
func (s socket) accept() (socket, error) {
	raw, err := s.SyscallConn()
	if err != nil {
		return socket{}, err
	}
	var fd int
	var failed error
	err = raw.Read(func(listener uintptr) bool {
		for {
			fd, _, failed = unix.Accept4(int(listener), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			if failed != unix.EINTR && failed != unix.ECONNABORTED {
				return failed != unix.EAGAIN
			}
		}
	})
	if err != nil {
		return socket{}, err
	}
	if failed != nil {
		return socket{}, failed
	}
	return socket{os.NewFile(uintptr(fd), "a call")}, nil
}

// shortage is how long the supervisor waits before it accepts again what it
// could not.
const shortage = 100 * time.Millisecond

// serve answers calls until the pod is stopped and the listener closed, and
// returns when all are answered.
func (s *Supervisor) serve(listener socket) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		conn, err := listener.accept()
		if err != nil && s.ctx.Err() != nil {
			return // the pod is being stopped, and run has closed the listener
		}
		if err != nil {
			// Descriptors or memory have run out. Calls that end give some back.
			fmt.Fprintf(s.log, "accept a call: %v\n", err)
			time.Sleep(shortage)
			continue
		}
		calls.Go(func() { s.converse(conn) })
	}
}

// converse answers one call.
func (s *Supervisor) converse(conn socket) {
	var watch sync.WaitGroup
	defer watch.Wait()
	defer conn.Close()
	packet, fds, err := conn.receive(wire.MaxFiles)
	if err != nil {
		return // a client that was killed before it could speak
	}
	call, err := wire.Decode(packet, fds)
	if err != nil {
		fmt.Fprintf(s.log, "a call: %v\n", err)
		return
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	watch.Go(func() {
		_, _ = conn.Read(make([]byte, 1)) // nothing but the end can come
		cancel(errors.New("the caller has gone"))
	})
	err = s.dispatch(ctx, call)
	if err != nil && call.Error != nil && err.Error() != "" {
		_, _ = io.WriteString(call.Error, strings.TrimRight(err.Error(), "\n")+"\n")
	}
	call.Close() // before the answer: an app's stdio has no other end here then
	_ = conn.send(wire.EncodeReply(codeOf(err)))
	if call.Entrypoint == abi.Stop {
		s.quit(call.Force)
	}
}

// dispatch serves a call.
func (s *Supervisor) dispatch(ctx context.Context, c *wire.Call) error {
	if c.Entrypoint == abi.Stop {
		s.stop(c.Force)
		return nil
	}
	r, err := readRequest(c.Request, c.Entrypoint)
	if err != nil {
		return err
	}
	switch c.Entrypoint {
	case abi.AppAdd:
		if s.older != nil {
			c = olderAdd()
		}
		return s.add(ctx, c, r)
	case abi.AppStart:
		return s.start(ctx, r)
	case abi.AppStop:
		return s.stopApp(ctx, r)
	case abi.AppRm:
		return s.remove(ctx, r)
	case abi.AppSignal:
		return s.signal(ctx, r)
	case abi.Enter:
		return s.enter(ctx, c, r)
	}
	return unsupported("entrypoint %s is not supported", c.Entrypoint)
}

// readyLine returns the ready line of a process that has not been reaped.
func readyLine(pid int) string {
	line := `{"pid": ` + strconv.Itoa(pid)
	if start := startTime(pid); start != "" {
		line += `, "starttime": ` + start
	}
	return line + "}\n"
}

// report writes a ready line. If nobody reads it, nobody waits.
func report(ready *os.File, line string) {
	if ready != nil {
		_, _ = ready.WriteString(line)
	}
}

// startTime returns field 22 of /proc/PID/stat. The second field is a name in
// parentheses that may hold anything.
func startTime(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	stat := string(b)
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}
