package supervisor

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/proc/rest"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/client"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seqpacket"
)

// logFile gets the messages for which no caller waits: a call that cannot be accepted, the
// trace of a crash. It is removed with the pod.
const logFile = "stage1/rootfs/rkt/native.log"

// Settings of the Go runtime. Every pod has a supervisor, which has little to do, so it
// must be small. A second processor would cost 200 KB and gain nothing. Go's runtime may use it
// before Run, so stage 0 sets abi.EnvProcessors. gcPercent keeps the heap smaller than the default
// does. freshMemory is the anonymous memory of a supervisor with its first app, and memoryGrowth
// the growth after which rest.Memory gives memory back.
const (
	processors   = 1
	gcPercent    = 50
	freshMemory  = 7 << 17
	memoryGrowth = 1 << 19
)

// Run is `run`: it serves the pod whose directory is the working directory until the pod is
// stopped, and returns the exit code. e makes the processes of apps; if e is nil, clone(2)
// does.
func Run(e Spawner) int {
	runtime.GOMAXPROCS(processors)
	debug.SetGCPercent(gcPercent)
	errorFile, ready := proc.Inherited(abi.EnvErrorFD), proc.Inherited(abi.EnvReadyFD)
	if err := run(ready, errorFile, e); err != nil {
		if errorFile == nil {
			errorFile = os.Stderr
		}
		fmt.Fprintln(errorFile, err)
		return serve.CodeOf(err)
	}
	return 0
}

// run closes ready and errorFile when the pod can be used. It returns when the pod has
// ended.
func run(ready, errorFile *os.File, e Spawner) error {
	request, err := runRequest()
	if err != nil {
		return err
	}
	// Do not make an os.File of the lock: the descriptor must stay open until this process
	// ends.
	if fd, err := strconv.Atoi(os.Getenv(abi.EnvLockFD)); err == nil && fd > 2 {
		unix.CloseOnExec(fd)
	}
	signal.Ignore(unix.SIGPIPE, unix.SIGHUP)
	sigterm := make(chan os.Signal, 1)
	signal.Notify(sigterm, unix.SIGTERM)
	if err := proc.SetSubreaper(); err != nil {
		return err
	}
	if err := Undumpable(); err != nil {
		return err
	}
	s, err := New(chronicle(request.NoticeWords, e))
	if err != nil {
		return err
	}
	defer func() {
		s.cancel(errStopping)
		_ = s.Children.Close(s.ctx) // after a forced stop some children may be running
	}()
	if err := os.Mkdir(abi.StatusDir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the directory of exits: %w", err)
	}
	listener, err := seqpacket.ListenStream(client.Socket)
	if err != nil {
		return err
	}
	if err := detach(); err != nil {
		return err
	}
	var serving sync.WaitGroup
	leader, err := s.Lead(request)
	if err != nil {
		return err
	}
	report(ready, leader)
	ready.Close()
	errorFile.Close()
	done := make(chan bool, 1) // whether a stop that was answered was forced
	memory := rest.NewMemory(freshMemory, memoryGrowth)
	server := &serve.Server{Dispatch: s.Dispatch, Code: serve.CodeOf, Log: s.Log, Answered: func(c *serve.Asked) {
		memory.Touch()
		if c.Entrypoint == abi.Stop {
			select {
			case done <- c.Force:
			default: // stop was called a second time
			}
		}
	}}
	serving.Go(func() { server.Serve(s.ctx, listener.File) })
	select {
	case <-sigterm:
		s.Stop(false)
	case forced := <-done:
		if forced {
			return nil // do not wait for anything
		}
	}
	listener.Close()
	_ = os.Remove(client.Socket)
	serving.Wait()
	return nil
}

// report writes a ready line. It ignores errors, because the reader may have
// ended.
func report(to *os.File, r abi.Ready) {
	if to != nil {
		line, _ := plainjson.Encode(r) // numbers and a word
		_, _ = to.Write(append(line, '\n'))
	}
}

// runRequest reads the request of run.
func runRequest() (*abi.Request, error) {
	text, err := os.ReadFile(os.Getenv(abi.EnvRequest))
	if err != nil {
		return nil, fmt.Errorf("read the request of run: %w", err)
	}
	r := &abi.Request{}
	if err := plainjson.Decode(text, r); err != nil {
		return nil, fmt.Errorf("the request of run: %w", err)
	}
	return r, checkRequest(r)
}

// detach replaces the inherited stdio by /dev/null and the log, because the error pipe has
// a reader only until the pod is ready.
func detach() error {
	log, err := os.OpenFile(logFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("make the supervisor's log: %w", err)
	}
	defer log.Close()
	null, err := os.OpenFile("/dev/null", os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("leave stdin: %w", err)
	}
	defer null.Close()
	for fd, f := range []*os.File{null, log, log} {
		if err := unix.Dup3(int(f.Fd()), fd, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("leave descriptor %d: %w", fd, err)
		}
	}
	return nil
}
