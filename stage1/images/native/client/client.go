package client

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/wire"
)

// Main serves one call of an entrypoint and returns the exit code. The working
// directory is the pod's; args are those after argv[0].
func Main(e abi.Entrypoint, args []string) int {
	if e == abi.GC {
		return 0 // nothing of a pod is kept outside its directory
	}
	errorFile := proc.Inherited(abi.EnvErrorFD)
	call, err := request(e, args, errorFile)
	code := 1
	if err == nil {
		code, err = Ask(call)
	}
	if err == nil {
		return code
	}
	if errorFile == nil {
		errorFile = os.Stderr
	}
	fmt.Fprintln(errorFile, err)
	return code
}

// request returns what is asked of the pod's supervisor.
func request(e abi.Entrypoint, args []string, errorFile *os.File) (*wire.Call, error) {
	call := &wire.Call{Entrypoint: e, Force: e == abi.Stop && slices.Contains(args, "--force"), Error: errorFile}
	var err error
	if call.Request, err = os.Open(os.Getenv(abi.EnvRequest)); err != nil {
		return nil, fmt.Errorf("open the request: %w", err)
	}
	if e == abi.AppAdd || e == abi.Enter {
		call.Ready = proc.Inherited(abi.EnvReadyFD)
		call.Stdio = [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
	}
	return call, nil
}

// errGone says that the pod has no supervisor.
var errGone = errors.New("the pod's supervisor has gone")

// Ask has the pod's supervisor serve a call, and returns the exit code. Without a supervisor
// a call that asks for an end succeeds.
func Ask(call *wire.Call) (int, error) {
	socket, err := dial()
	if errors.Is(err, errGone) {
		return withoutSupervisor(call.Entrypoint, abi.ExitNotFound, err)
	}
	if err != nil {
		return 1, err
	}
	packet, fds := call.Encode()
	err = proc.Send(socket, packet, fds...)
	runtime.KeepAlive(call) // fds are numbers
	if err != nil {
		return 1, fmt.Errorf("speak with the pod's supervisor: %w", err)
	}
	return answer(call.Entrypoint, socket)
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

func dial() (int, error) {
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make a socket: %w", err)
	}
	for {
		err = unix.Connect(socket, &unix.SockaddrUnix{Name: wire.Socket})
		switch err {
		case nil:
			return socket, nil
		case unix.EINTR: // connect to a unix socket may be repeated
		case unix.ENOENT, unix.ECONNREFUSED:
			return -1, errGone
		default:
			return -1, fmt.Errorf("reach the pod's supervisor: %w", err)
		}
	}
}

func answer(e abi.Entrypoint, socket int) (int, error) {
	var packet [wire.MaxPacket]byte
	for {
		n, err := unix.Read(socket, packet[:])
		if err == unix.EINTR {
			continue
		}
		if err == nil && n > 0 {
			code, text, err := wire.DecodeReply(packet[:n])
			if err == nil && text != "" {
				err = errors.New(text)
			}
			return code, err
		}
		return withoutSupervisor(e, 1, errors.New("the pod's supervisor has died over this call"))
	}
}
