package local

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"
)

// processURL is the type of an exec's process in containerd's messages.
const processURL = "types.containerd.io/opencontainers/runtime-spec/1/Process"

// ExecConfig is a request for a process in a running app.
type ExecConfig struct {
	App      string
	Args     []string
	Env      []string
	Cwd      string
	Terminal bool
	Stdin    io.Reader // nil: no input
	Stdout   io.Writer
	Stderr   io.Writer // not used with a terminal
	// Resize delivers sizes of the terminal. A size that it has when Exec is called is the program's first.
	Resize <-chan Size
}

// Size is the size of a terminal, in characters.
type Size struct{ Width, Height uint32 }

// Exec executes a command in a running app, and returns its exit code, 128 plus the signal if a
// signal has ended it. If ctx ends, the process is killed.
func (p *Pod) Exec(ctx context.Context, c ExecConfig) (code int, err error) {
	a := p.app(c.App)
	spec, err := a.execSpec(ctx, c)
	if err != nil {
		return 0, err
	}
	p.sweepExecs(ctx)
	e := &execution{app: a, id: "x" + rand.Text(), config: c}
	e.dir = p.path(execsDir, e.id)
	if err := os.Mkdir(e.dir, dirMode); err != nil {
		return 0, err
	}
	l, err := lock(ctx, e.dir, true)
	if err != nil || l == nil {
		return 0, fmt.Errorf("exec in app %s: interrupted by another command: %w", c.App, errors.Join(err, errdefs.ErrUnavailable))
	}
	defer l.Close()
	defer os.RemoveAll(e.dir)
	if e.server, err = p.server(ctx); err != nil {
		return 0, err
	}
	defer e.server.close()
	if code, err = e.run(ctx, spec); err != nil {
		return 0, fmt.Errorf("exec in app %s of pod %s: %w", c.App, p.uuid, err)
	}
	return code, nil
}

// execSpec returns the process of an exec: that of the app, with other arguments.
func (a *app) execSpec(ctx context.Context, c ExecConfig) ([]byte, error) {
	if len(c.Args) == 0 {
		return nil, fmt.Errorf("exec in app %s: no command: %w", a.name, errdefs.ErrInvalidArgument)
	}
	st, err := a.pod.Status(ctx, a.name)
	if err == nil && st.State != Running && st.State != Stopping {
		err = a.illegal(st.State, "a command can be executed in a running app only")
	}
	if err != nil {
		return nil, err
	}
	process, err := a.process()
	if err != nil {
		return nil, err
	}
	process.Args, process.Terminal = c.Args, c.Terminal
	process.Env = environment(process.Env, c.Env, c.Terminal)
	if c.Cwd != "" {
		process.Cwd = c.Cwd
	}
	return json.Marshal(process)
}

// process returns the app's process, as its config.json has it.
func (a *app) process() (*specs.Process, error) {
	text, err := os.ReadFile(filepath.Join(a.bundle(), "config.json"))
	if err != nil {
		return nil, err
	}
	var s specs.Spec
	if err := json.Unmarshal(text, &s); err != nil || s.Process == nil {
		return nil, fmt.Errorf("app %s: its config.json has no process: %w", a.name, errors.Join(err, errdefs.ErrDataLoss))
	}
	return s.Process, nil
}

// sweepExecs removes the execs whose command was killed and whose process has ended. A process
// that runs is left alone.
func (p *Pod) sweepExecs(ctx context.Context) {
	entries, _ := os.ReadDir(p.path(execsDir))
	for _, entry := range entries {
		dir := p.path(execsDir, entry.Name())
		l, err := lock(ctx, dir, false)
		if err != nil || l == nil {
			continue
		}
		app, _ := os.ReadFile(filepath.Join(dir, "app"))
		if p.dropExec(ctx, string(app), entry.Name()) {
			_ = os.RemoveAll(dir)
		}
		l.Close()
	}
}

// dropExec deletes an exec that has ended, and reports whether the server does not know it any
// more.
func (p *Pod) dropExec(ctx context.Context, app, id string) bool {
	s, err := p.server(ctx)
	if err != nil {
		return errors.Is(err, errNoServer)
	}
	defer s.close()
	r, err := s.State(ctx, &task.StateRequest{ID: app, ExecID: id})
	if err == nil && r.Status == tasktypes.Status_RUNNING {
		return false
	}
	_, err = s.Delete(ctx, &task.DeleteRequest{ID: app, ExecID: id})
	return err == nil || gone(native(err))
}

// execution is an exec in progress.
type execution struct {
	app    *app
	id     string
	dir    string
	config ExecConfig
	server *server

	stdin   *os.File // the writing end
	outputs sync.WaitGroup
}

func (e *execution) run(ctx context.Context, spec []byte) (int, error) {
	r := &task.ExecProcessRequest{
		ID: e.app.name, ExecID: e.id, Terminal: e.config.Terminal,
		Spec: &anypb.Any{TypeUrl: processURL, Value: spec},
	}
	if err := os.WriteFile(filepath.Join(e.dir, "app"), []byte(e.app.name), 0o600); err != nil {
		return 0, err
	}
	var err error
	if r.Stdin, err = e.openInput(); err != nil {
		return 0, err
	}
	if r.Stdout, err = e.openOutput("stdout", e.config.Stdout); err != nil {
		return 0, err
	}
	if !e.config.Terminal {
		if r.Stderr, err = e.openOutput("stderr", e.config.Stderr); err != nil {
			return 0, err
		}
	}
	if _, err := e.server.Exec(ctx, r); err != nil {
		e.unblock()
		return 0, native(err)
	}
	defer e.server.Delete(context.WithoutCancel(ctx), &task.DeleteRequest{ID: e.app.name, ExecID: e.id})
	select {
	case z := <-e.config.Resize:
		_, _ = e.server.ResizePty(ctx, &task.ResizePtyRequest{ID: e.app.name, ExecID: e.id, Width: z.Width, Height: z.Height})
	default:
	}
	if _, err := e.server.Start(ctx, &task.StartRequest{ID: e.app.name, ExecID: e.id}); err != nil {
		e.unblock()
		return 0, native(err)
	}
	e.app.pod.store.fault("start exec")
	return e.wait(ctx)
}

// wait copies the input, resizes the terminal and returns the exit code.
func (e *execution) wait(ctx context.Context) (int, error) {
	done := make(chan struct{})
	defer close(done)
	if e.stdin != nil {
		go e.feed(done)
	}
	resizing, stopResizing := context.WithCancel(ctx)
	defer stopResizing()
	go e.server.resize(resizing, e.app.name, e.id, e.config.Resize)
	stop := context.AfterFunc(ctx, func() {
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), killLimit)
		defer cancel()
		_, _ = e.server.Kill(limit, &task.KillRequest{ID: e.app.name, ExecID: e.id, Signal: uint32(unix.SIGKILL)})
	})
	defer stop()
	r, err := e.server.Wait(context.WithoutCancel(ctx), &task.WaitRequest{ID: e.app.name, ExecID: e.id})
	if err != nil {
		e.unblock()
		return 0, native(err)
	}
	e.outputs.Wait()
	return int(r.ExitStatus), ctx.Err()
}

// feed copies the input to the process. At its end the process sees the end, too.
func (e *execution) feed(done <-chan struct{}) {
	_, _ = io.Copy(e.stdin, e.config.Stdin)
	_ = e.stdin.Close()
	select {
	case <-done:
	default:
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, _ = e.server.CloseIO(ctx, &task.CloseIORequest{ID: e.app.name, ExecID: e.id, Stdin: true})
	}
}

// openInput makes the fifo of the input.
func (e *execution) openInput() (path string, err error) {
	if e.config.Stdin == nil {
		return "", nil
	}
	path = filepath.Join(e.dir, "stdin")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return "", err
	}
	// O_RDWR does not wait for the server.
	e.stdin, err = os.OpenFile(path, os.O_RDWR, 0)
	return path, err
}

// openOutput makes a fifo and copies what comes.
func (e *execution) openOutput(name string, to io.Writer) (string, error) {
	if to == nil {
		return "", nil
	}
	path := filepath.Join(e.dir, name)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return "", err
	}
	e.outputs.Go(func() {
		f, err := os.Open(path) // waits for the server, or for unblock
		if err == nil {
			_, _ = io.Copy(to, f)
			f.Close()
		}
	})
	return path, nil
}

// unblock ends the outputs of a process that was not started.
func (e *execution) unblock() {
	for _, name := range []string{"stdout", "stderr"} {
		if f, err := os.OpenFile(filepath.Join(e.dir, name), os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
			f.Close()
		}
	}
	e.outputs.Wait()
}

// Logs returns the paths of an app's log files that exist, the oldest first. The app may have
// been removed.
func (p *Pod) Logs(name string) ([]string, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	var paths []string
	for i := range LogFiles {
		paths = append(paths, older(p.app(name).log(), i))
	}
	paths = slices.DeleteFunc(paths, func(path string) bool {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	})
	if len(paths) == 0 {
		return nil, fmt.Errorf("pod %s has no log of an app %q: %w", p.uuid, name, errdefs.ErrNotFound)
	}
	slices.Reverse(paths)
	return paths, nil
}
