package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seqpacket"
)

// maxHookOutput is how much of the end of a hook's output an error has, in bytes.
const maxHookOutput = 2048

func (s *Supervisor) runHook(ctx context.Context, h specs.Hook, bundle string, state []byte) error {
	if h.Timeout != nil {
		limit := time.Duration(*h.Timeout) * time.Second
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("timed out after %s", limit))
		defer cancel()
	}
	output, inherited, err := outputPipe()
	if err != nil {
		return err
	}
	tail := make(chan string, 1)
	defer output.Close()
	c, err := s.startHook(ctx, h, bundle, state, inherited)
	if err != nil {
		return err
	}
	go func() { tail <- readTail(output) }()

	stop := context.AfterFunc(ctx, func() { _ = c.KillGroup() })
	status := c.Wait()
	stop()
	// A daemon that the hook left behind may keep the pipe open.
	_ = output.SetReadDeadline(time.Unix(1, 0))
	said := <-tail
	if status.Code == 0 {
		return nil
	}
	err = errors.New(ending(status))
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if said = strings.TrimSpace(said); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// startHook starts a hook's process. It takes output over.
func (s *Supervisor) startHook(ctx context.Context, h specs.Hook, bundle string, state []byte, output *os.File) (*proc.Child, error) {
	defer output.Close()
	stdin, err := proc.Memory("native-state", state)
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	dir, err := os.OpenFile(bundle, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the bundle: %w", err)
	}
	defer dir.Close()
	args := h.Args
	if len(args) == 0 {
		args = []string{h.Path}
	}
	c, err := s.fork(ctx, &fork.Process{
		Path: h.Path, Args: args, Env: h.Env, Dir: dir,
		Files: []*os.File{stdin, output, output},
	})
	if err != nil {
		return nil, err
	}
	c.Decide(nil, nil)
	return c, nil
}

// outputPipe makes a pipe whose read end waits in the poller and whose write end blocks.
func outputPipe() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make a pipe for a hook: %w", err)
	}
	s, err := seqpacket.Adopt(fds[0], "output of a hook")
	if err != nil {
		unix.Close(fds[1])
		return nil, nil, err
	}
	return s.File, os.NewFile(uintptr(fds[1]), "output of a hook"), nil
}

// readTail reads until the end of file or the deadline, then empties the pipe, and returns
// the end of the text.
func readTail(r *os.File) string {
	var t tail
	buf := make([]byte, maxHookOutput)
	for {
		n, err := r.Read(buf)
		t.write(buf[:n])
		if err != nil {
			break
		}
	}
	_ = proc.Control(r, func(fd int) error {
		for range 64 { // a daemon may go on writing
			n, err := unix.Read(fd, buf)
			if n <= 0 || err != nil {
				return err
			}
			t.write(buf[:n])
		}
		return nil
	})
	return string(t)
}

// tail keeps the last maxHookOutput bytes written to it.
type tail []byte

func (t *tail) write(p []byte) {
	*t = append(*t, p...)
	if over := len(*t) - maxHookOutput; over > 0 {
		*t = append((*t)[:0], (*t)[over:]...)
	}
}
