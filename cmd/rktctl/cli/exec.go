package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/console"
	"github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// processType is the type of an exec's spec in requests of the Task service.
const processType = "types.containerd.io/opencontainers/runtime-spec/1/Process"

// execution is a program that is executed in an app, beside its other processes.
type execution struct {
	env             *Env
	stdin, terminal bool
	user, cwd       string
	vars            []string
	args            []string
}

func newExec(e *Env) *cobra.Command {
	cmd := verb("exec", "exec [OPTIONS] POD [--] PROGRAM [ARGUMENTS]", "execute a program in a running app", func(cmd *cobra.Command, args []string) error {
		if len(args) < 2 {
			return errUsage(cmd, "a POD and a PROGRAM, and not %d words", len(args))
		}
		return nil
	})
	x := &execution{env: e}
	x.flags(cmd)
	cmd.Flags().BoolVarP(&x.stdin, "stdin", "i", false, "give the program the standard input")
	cmd.Flags().BoolVarP(&x.terminal, "tty", "t", false, "give the program a terminal; needs --stdin, which has to be a terminal")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if x.terminal && (!x.stdin || terminalOf(e) == nil) {
			return errUsage(cmd, "--tty needs --stdin, and a terminal there")
		}
		x.args = args[1:]
		return x.in(cmd, args[0])
	}
	return cmd
}

func newEnter(e *Env) *cobra.Command {
	cmd := verb("enter", "enter [OPTIONS] POD [--] [PROGRAM [ARGUMENTS]]", "execute a shell in a running app", func(cmd *cobra.Command, args []string) error {
		if len(args) < 1 {
			return errUsage(cmd, "one POD, and not 0")
		}
		return nil
	})
	x := &execution{env: e, stdin: true}
	x.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		x.terminal = terminalOf(e) != nil
		if x.args = args[1:]; len(x.args) == 0 {
			x.args = []string{"/bin/sh"}
		}
		return x.in(cmd, args[0])
	}
	return cmd
}

// flags adds the options that exec and enter share. Options after POD are the program's.
func (x *execution) flags(cmd *cobra.Command) {
	cmd.ValidArgsFunction = completePods(x.env, 1)
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVarP(&x.user, "user", "u", "", "execute it as `UID[:GID]`, numbers, instead of as the app's user")
	cmd.Flags().StringVar(&x.cwd, "cwd", "", "execute it in the directory `DIR` of the app")
	cmd.Flags().StringArrayVarP(&x.vars, "env", "e", nil, "set a variable, `NAME=VALUE`, in addition to the app's; may be given more than once")
}

// terminalOf returns the terminal at the standard input, or nil.
func terminalOf(e *Env) *os.File {
	f, ok := e.Stdin.(*os.File)
	if !ok {
		return nil
	}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return nil
	}
	return f
}

// in executes the program in the app that a word names.
func (x *execution) in(cmd *cobra.Command, word string) (err error) {
	_, p, a, err := find(x.env, word)
	if err != nil {
		return err
	}
	if a, err = oneApp(cmd, p, a); err != nil {
		return err
	}
	spec, err := x.process(cmd, a)
	if err != nil {
		return err
	}
	s, err := dial(cmd.Context(), p, a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return x.run(cmd.Context(), s, a, spec)
}

// process returns the OCI process: the app's own, with the program and the options in place
// of what it has.
func (x *execution) process(cmd *cobra.Command, a *view.App) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(a.Bundle, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("app %s: %w", a.ID, err)
	}
	var spec struct {
		Process map[string]any `json:"process"`
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber() // limits may be larger than what a float64 can express
	if err := dec.Decode(&spec); err != nil || spec.Process == nil {
		return nil, fmt.Errorf("app %s: %s/config.json has no process: %w", a.ID, a.Bundle, err)
	}
	p := spec.Process
	p["args"], p["terminal"] = x.args, x.terminal
	delete(p, "consoleSize")
	if x.cwd != "" {
		p["cwd"] = x.cwd
	}
	if x.user != "" {
		u, g, err := parseUser(x.user)
		if err != nil {
			return nil, errUsage(cmd, "--user: %w", err)
		}
		p["user"] = map[string]any{"uid": u, "gid": g}
	}
	if len(x.vars) > 0 {
		env, _ := p["env"].([]any)
		for _, v := range x.vars {
			if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
				return nil, errUsage(cmd, "--env: %q is not NAME=VALUE", v)
			}
			env = append(env, v)
		}
		p["env"] = env
	}
	return json.Marshal(p)
}

// execID returns the id of an exec. No client makes such an id, and it is not the beginning
// of a container's id, with which CRI's event handler would confuse it.
func execID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("rktctl-%x", b)
}

// Limits of the end of an exec.
const (
	killGrace   = 5 * time.Second // after SIGTERM, before SIGKILL
	outputGrace = time.Second     // for output that is still on its way
)

// run executes the program as containerd does: by Exec, Wait, Start and Delete.
func (x *execution) run(ctx context.Context, s *server, a *view.App, spec []byte) (err error) {
	streams, err := newStreams(x)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, streams.close()) }()
	id := execID()
	fail := func(what string, err error) error {
		return fmt.Errorf("%s in app %s: %w", what, a.ID, errgrpc.ToNative(err))
	}
	rpc := s.in(context.WithoutCancel(ctx)) // the exec is ended if ctx ends
	_, err = s.Exec(rpc, &task.ExecProcessRequest{
		ID: a.ID, ExecID: id, Terminal: x.terminal,
		Stdin: streams.path("stdin"), Stdout: streams.path("stdout"), Stderr: streams.path("stderr"),
		Spec: &anypb.Any{TypeUrl: processType, Value: spec},
	})
	if err != nil {
		return fail("exec", err)
	}
	remove := func() error {
		_, err := s.Delete(rpc, &task.DeleteRequest{ID: a.ID, ExecID: id})
		return err
	}
	if err := streams.open(); err != nil { // the shim has the other ends open
		return errors.Join(err, remove())
	}
	// The program may end its container, which containerd removes with its execs: so Wait comes before Start.
	var exit *task.WaitResponse
	ended := make(chan error, 1)
	go func() {
		var err error
		exit, err = s.Wait(rpc, &task.WaitRequest{ID: a.ID, ExecID: id})
		ended <- err
	}()
	// Before Start: the program may look at the size at once, and it must not run without its terminal.
	undo, err := x.takeTerminal(func(w, h uint16) {
		_, _ = s.ResizePty(rpc, &task.ResizePtyRequest{ID: a.ID, ExecID: id, Width: uint32(w), Height: uint32(h)})
	})
	if err != nil {
		return errors.Join(fmt.Errorf("take over the terminal for an exec in app %s: %w", a.ID, err), remove())
	}
	defer undo()
	if _, err := s.Start(rpc, &task.StartRequest{ID: a.ID, ExecID: id}); err != nil {
		return errors.Join(fail("start "+x.args[0], err), remove())
	}
	streams.copy(func() { _, _ = s.CloseIO(rpc, &task.CloseIORequest{ID: a.ID, ExecID: id, Stdin: true}) })
	stop := context.AfterFunc(ctx, func() { x.end(rpc, s, a.ID, id) })
	defer stop()
	if err := <-ended; err != nil {
		return fail("wait for "+x.args[0], err)
	}
	if err := remove(); err != nil && !errdefs.IsNotFound(errgrpc.ToNative(err)) {
		return fail("remove the exec "+id, err)
	}
	streams.drain(outputGrace)
	if exit.ExitStatus != 0 {
		return exitError(exit.ExitStatus)
	}
	return nil
}

// end ends an exec when rktctl is interrupted.
func (x *execution) end(ctx context.Context, s *server, app, id string) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if _, err := s.Kill(ctx, &task.KillRequest{ID: app, ExecID: id, Signal: uint32(sig)}); err != nil {
			return // it has ended
		}
		if sig == syscall.SIGTERM && proc.Sleep(ctx, killGrace) != nil {
			return
		}
	}
}

// takeTerminal puts the terminal into raw mode, calls resize with its size, and again after
// every change. undo does the opposite.
func (x *execution) takeTerminal(resize func(width, height uint16)) (undo func(), err error) {
	if !x.terminal {
		return func() {}, nil
	}
	t, err := console.ConsoleFromFile(terminalOf(x.env))
	if err != nil {
		return nil, err
	}
	if err := t.SetRaw(); err != nil {
		return nil, err
	}
	sizes := make(chan os.Signal, 1)
	signal.Notify(sizes, unix.SIGWINCH)
	pass := func() {
		if size, err := t.Size(); err == nil {
			resize(size.Width, size.Height)
		}
	}
	pass()
	var done sync.WaitGroup
	done.Go(func() {
		for range sizes {
			pass()
		}
	})
	return func() {
		signal.Stop(sizes)
		close(sizes)
		done.Wait()
		_ = t.Reset()
	}, nil
}

// streams are the fifos between rktctl and the shim.
type streams struct {
	x      *execution
	dir    string
	files  map[string]*os.File // of outputs
	copies sync.WaitGroup      // of outputs
}

func newStreams(x *execution) (*streams, error) {
	dir, err := os.MkdirTemp("", "rktctl-exec-") // 0700: other users cannot open the fifos
	if err != nil {
		return nil, err
	}
	s := &streams{x: x, dir: dir, files: map[string]*os.File{}}
	if err := s.make(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// make makes the fifos.
func (s *streams) make() error {
	for _, name := range []string{"stdin", "stdout", "stderr"} {
		if path := s.path(name); path != "" {
			if err := unix.Mkfifo(path, 0o600); err != nil {
				return fmt.Errorf("fifo %s: %w", path, err)
			}
		}
	}
	return nil
}

// path returns the path of a fifo, or an empty string if the exec has no such stream.
func (s *streams) path(name string) string {
	if name == "stdin" && !s.x.stdin || name == "stderr" && s.x.terminal {
		return ""
	}
	return filepath.Join(s.dir, name)
}

// open opens the fifos of the outputs. It does not wait until the shim has opened them.
func (s *streams) open() error {
	for _, name := range []string{"stdout", "stderr"} {
		path := s.path(name)
		if path == "" {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		s.files[name] = f
	}
	return nil
}

// copy begins to copy. ended is called when the input has ended.
func (s *streams) copy(ended func()) {
	for name, to := range map[string]io.Writer{"stdout": s.x.env.Stdout, "stderr": s.x.env.Stderr} {
		if f := s.files[name]; f != nil {
			s.copies.Go(func() { _, _ = io.Copy(to, f) })
		}
	}
	if path := s.path("stdin"); path != "" {
		// A read of the standard input cannot be interrupted, so nothing waits for this. The
		// shim opens the fifo when the program is started: until then the open waits.
		go func() {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return // the program has ended
			}
			if s.x.env.Stdin != nil {
				_, _ = io.Copy(f, s.x.env.Stdin)
			}
			_ = f.Close()
			ended()
		}()
	}
}

// drain waits for the ends of the outputs. A process that the exec has left behind may keep
// them open.
func (s *streams) drain(limit time.Duration) {
	t := time.AfterFunc(limit, func() {
		for _, name := range []string{"stdout", "stderr"} {
			if f := s.files[name]; f != nil {
				_ = f.SetReadDeadline(time.Now())
			}
		}
	})
	s.copies.Wait()
	t.Stop()
}

func (s *streams) close() error {
	for _, f := range s.files {
		_ = f.Close()
	}
	return os.RemoveAll(s.dir)
}
