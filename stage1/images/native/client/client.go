package client

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Socket is the path of the supervisor's socket, relative to the pod's directory: the
// address of a socket has room for 107 bytes only, and the pod's directory may be renamed.
// The manifests name this path.
const Socket = "stage1/rootfs/rkt/native.sock"

// Call is one call of an entrypoint.
type Call struct {
	Entrypoint abi.Entrypoint
	Request    []byte // the request document

	// Files that the entrypoint was given; nil for a missing one.
	Stdio  [3]*os.File // the app's
	Error  *os.File    // for the text of a failure
	Ready  *os.File    // for the ready line
	Answer *os.File    // for the document of app/stats
}

// Main serves one call of an entrypoint and returns the exit code. The working directory is
// the pod's. args are the arguments after argv[0].
func Main(e abi.Entrypoint, args []string) int {
	if e == abi.GC {
		return 0 // a pod has nothing outside its directory
	}
	call := &Call{Entrypoint: e, Error: proc.Inherited(abi.EnvErrorFD)}
	if call.Error == nil {
		call.Error = os.Stderr
	}
	code := 1
	err := call.read(args)
	if err == nil {
		code, err = Ask(call)
	}
	if err != nil {
		fmt.Fprintln(call.Error, err)
	}
	return code
}

// read reads the request, and sets the files of the call.
func (c *Call) read(args []string) (err error) {
	if c.Request, err = os.ReadFile(os.Getenv(abi.EnvRequest)); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	if c.Entrypoint == abi.Stop && slices.Contains(args, "--force") && len(c.Request) > 0 {
		c.Request = slices.Concat([]byte(`{"force":true,`), c.Request[1:])
	}
	if c.Entrypoint == abi.AppAdd || c.Entrypoint == abi.Enter {
		c.Ready = proc.Inherited(abi.EnvReadyFD)
		c.Stdio = [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
	}
	if c.Entrypoint == abi.AppStats {
		c.Answer = os.Stdout
	}
	return nil
}

// errGone says that the pod has no supervisor.
var errGone = errors.New("the pod's supervisor has gone")

// Ask passes a call to the pod's supervisor, and returns the exit code. If there is no
// supervisor, calls that ask for an end succeed.
func Ask(call *Call) (int, error) {
	conn, err := dial()
	if errors.Is(err, errGone) {
		return withoutSupervisor(call.Entrypoint, abi.ExitNotFound, err)
	}
	if err != nil {
		return 1, err
	}
	var fds []int
	for _, f := range call.Stdio {
		if f != nil {
			fds = append(fds, int(f.Fd()))
		}
	}
	err = conn.Send(serve.Call, call.Request, fds...)
	runtime.KeepAlive(call) // keeps the files open: fds has only their numbers
	if err != nil {
		return 1, fmt.Errorf("speak with the pod's supervisor: %w", err)
	}
	return call.answer(conn)
}

// withoutSupervisor returns the answer to a call for a pod that has ended: a call that asks
// for an end succeeds, others fail.
func withoutSupervisor(e abi.Entrypoint, code int, err error) (int, error) {
	switch e {
	case abi.Stop, abi.AppStop, abi.AppRm:
		return 0, nil
	}
	return code, err
}

func dial() (*serve.Conn, error) {
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket: %w", err)
	}
	for {
		err = unix.Connect(socket, &unix.SockaddrUnix{Name: Socket})
		switch err {
		case nil:
			return serve.NewConn(socket), nil
		case unix.EINTR: // connect(2) on a unix socket can be repeated
		case unix.ENOENT, unix.ECONNREFUSED:
			return nil, errGone
		default:
			return nil, fmt.Errorf("reach the pod's supervisor: %w", err)
		}
	}
}

// answer passes on what the supervisor answers, and returns the exit code.
func (c *Call) answer(conn *serve.Conn) (int, error) {
	for {
		word, body, err := conn.Receive(serve.MaxAnswer)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return withoutSupervisor(c.Entrypoint, 1, errors.New("the pod's supervisor has died over this call"))
		}
		if err != nil {
			return 1, err
		}
		switch word {
		case serve.Exit:
			return strconv.Atoi(string(body))
		case serve.Ready:
			c.pass(c.Ready, body)
		case serve.Answer:
			c.pass(c.Answer, body)
		case serve.Error:
			c.pass(c.Error, body)
		}
	}
}

// pass writes a line to a file of the call. It ignores errors, because the reader may have
// closed its end.
func (c *Call) pass(to *os.File, line []byte) {
	if to != nil {
		_, _ = to.Write(append(line, '\n'))
	}
}
