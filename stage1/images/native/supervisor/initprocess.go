package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seqpacket"
)

// initProcess is a process between its clone and its exec: this binary, executed as `init`
// in its namespaces, with a socket to the supervisor. Package container has the other side
// of the socket. The first process of an ordinary app is begun by a plan in place of init.
type initProcess struct {
	child    *proc.Child
	begun    *fork.Begun // or nil, if it is init
	words    seqpacket.Socket
	prepared *container.Prepared
	console  func(master *os.File) error // takes the master of the terminal
	// prepareSpawn lets a spawner prepare the process. It is nil without a spawner, and for
	// an exec.
	prepareSpawn func(*fork.Process) (*Spawn, error)
	spawn        *Spawn // the result of prepareSpawn, until the app is ready
	// netDevices moves the network devices of the spec; nil for an exec.
	netDevices func() error
	// listener passes the listener of the process's seccomp filter to the agent.
	listener func(pid int, listener *os.File) error
	// hooks runs the hooks of the runtime namespace; nil for an exec.
	hooks func(context.Context) error
}

// start clones p, whose namespaces and cgroup are already set, with the files that init
// expects. After an error the caller closes prepared.
func (i *initProcess) start(ctx context.Context, s *Supervisor, who string, stdio [3]*os.File, p *fork.Process) error {
	words, theirs, err := seqpacket.Pair("the socket of " + who)
	if err != nil {
		return err
	}
	defer theirs.Close()
	config, err := i.prepared.Config()
	if err != nil {
		words.Close()
		return err
	}
	plan, err := proc.Memory("native-plan", config)
	if err != nil {
		words.Close()
		return err
	}
	defer plan.Close()
	p.Args = []string{"init"}
	p.Files = append([]*os.File{stdio[0], stdio[1], stdio[2], theirs, plan}, i.prepared.Files...)
	if err = i.cloneUnread(ctx, s, who, p, words, theirs); err != nil {
		words.Close()
		return err
	}
	i.words = words
	i.prepared.Close() // the process has its own copies
	return nil
}

// cloneUnread makes the process. If it is in a user namespace that lets it read this
// binary, cloneUnread makes it again with a copy of the binary that it cannot read.
func (i *initProcess) cloneUnread(ctx context.Context, s *Supervisor, who string, p *fork.Process, words seqpacket.Socket, theirs *os.File) (err error) {
	p.Exe, p.Unreadable = s.exe, p.Root
	if i.child, err = i.clone(ctx, s, who, p, words, theirs); !errors.Is(err, fork.ErrReadable) {
		return err
	}
	if p.Exe, err = s.hide(); err == nil {
		i.child, err = i.clone(ctx, s, who, p, words, theirs)
	}
	if err != nil && (p.Exe == nil || errors.Is(err, fork.ErrReadable)) {
		return serve.Unsupported("linux.uidMappings: the program of this stage1 can be read in this user namespace. It needs mode 0711 and, "+
			"for a namespace that holds the host's user 0, a filesystem with id-mapped mounts: %v", err)
	}
	return err
}

// clone makes the process. After that, only this process has the child's end of the socket
// open.
func (i *initProcess) clone(ctx context.Context, s *Supervisor, who string, p *fork.Process, words seqpacket.Socket, theirs *os.File) (*proc.Child, error) {
	if i.prepareSpawn == nil {
		return s.fork(ctx, p)
	}
	e, err := i.prepareSpawn(p)
	if err != nil {
		return nil, err
	}
	i.spawn = e
	if err := identify(words, true); err != nil {
		return nil, fmt.Errorf("prepare the socket of %s: %w", who, err)
	}
	started := e.Started
	e.Started = func() { started(); theirs.Close() }
	return s.startSpawn(ctx, e, words)
}

// fork makes a child whose verdict is not given yet.
func (s *Supervisor) fork(ctx context.Context, p *fork.Process) (*proc.Child, error) {
	return s.Children.Make(func() (int, error) { return fork.Start(ctx, p) })
}

// hide returns this binary in a form that no process can read, for user namespaces that map
// the host's root, who owns the binary.
func (s *Supervisor) hide() (*os.File, error) {
	if f := s.hidden.Load(); f != nil {
		return f, nil
	}
	f, err := container.Unreadable(s.exe)
	if err != nil {
		return nil, err
	}
	if !s.hidden.CompareAndSwap(nil, f) { // another call was faster; use its file
		f.Close()
	}
	return s.hidden.Load(), nil
}

// leave closes the files that were only needed to make the process.
func (i *initProcess) leave() {
	if i.spawn != nil {
		i.spawn.Close()
		i.spawn = nil
	}
}

// The errors of follow when the socket is closed.
var (
	errExecuted = errors.New("the program is executed")
	errDied     = errors.New("the process has ended") // explain adds the exit status
)

// ready waits until the process is blocked before its exec.
func (i *initProcess) ready(ctx context.Context) error {
	if i.begun != nil {
		return nil // see byPlan
	}
	err := i.follow(ctx, container.WordReady)
	if err == errExecuted {
		return errors.New("the program was executed before it was asked for")
	}
	return err
}

// release lets a process go on that is ready, and waits until it has executed its program.
func (i *initProcess) release(ctx context.Context) error {
	if i.begun != nil {
		return i.releaseByPlan(ctx)
	}
	if err := i.say(container.WordStart); err != nil {
		return err
	}
	return i.executed(ctx)
}

// close forgets the process.
func (i *initProcess) close() {
	if i.begun != nil {
		i.begun.Close()
		return
	}
	i.words.Close()
}

// executed waits until the process has executed its program.
func (i *initProcess) executed(ctx context.Context) error {
	if err := i.follow(ctx, ""); err != errExecuted {
		return err
	}
	return nil
}

// follow answers the messages of the process until the process sends the word last,
// executes its program (errExecuted) or fails. When ctx ends, follow kills the process.
func (i *initProcess) follow(ctx context.Context, last container.Word) error {
	defer context.AfterFunc(ctx, func() { _ = i.child.Kill() })()
	exec := false
	for {
		m, master, err := i.hear()
		switch {
		case err == io.EOF && exec:
			return errExecuted
		case err == io.EOF:
			return errDied
		case err != nil:
			return err
		}
		if m.Word == container.WordError {
			return &serve.Failure{Code: m.Code, Text: m.Text}
		}
		if m.Word == last {
			return nil
		}
		if m.Word == container.WordExec {
			exec = true
			continue
		}
		if err := i.serve(ctx, m, master); err != nil {
			return err
		}
	}
}

// hear returns the next message of the process, and the descriptor that came with it.
func (i *initProcess) hear() (m container.Message, master *os.File, err error) {
	packet, fds, err := i.words.Receive(1)
	if err != nil {
		return m, nil, err
	}
	if len(fds) > 0 {
		master = os.NewFile(uintptr(fds[0]), "console")
	}
	if err := plainjson.Decode(packet, &m); err != nil {
		master.Close()
		return m, nil, fmt.Errorf("a message of process %d: %w", i.child.PID(), err)
	}
	return m, master, nil
}

// serve answers a message of the process.
func (i *initProcess) serve(ctx context.Context, m container.Message, master *os.File) error {
	defer master.Close()
	switch m.Word {
	case container.WordNetDevices:
		if i.netDevices != nil {
			if err := i.netDevices(); err != nil {
				return err
			}
		}
		return i.say(container.WordGo)
	case container.WordListener:
		if err := i.handOver(m.Code); err != nil {
			return err
		}
		return i.say(container.WordGo)
	case container.WordHooks:
		if i.hooks != nil {
			if err := i.hooks(ctx); err != nil {
				return err
			}
		}
		return i.say(container.WordGo)
	case container.WordLimits:
		if err := i.prepared.Limit(i.child.PID()); err != nil {
			return err
		}
		return i.say(container.WordGo)
	case container.WordConsole:
		if master == nil {
			return errors.New("the console came without its descriptor")
		}
		return i.console(master)
	}
	return fmt.Errorf("process %d sent %q, which is no word of init", i.child.PID(), m.Word)
}

// say sends a word. It ignores that the process has ended, because the next read reports
// that.
func (i *initProcess) say(w container.Word) error {
	if err := i.words.Send(container.Message{Word: w}.Encode()); err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		return fmt.Errorf("send %q to process %d: %w", w, i.child.PID(), err)
	}
	return nil
}

// explain adds the exit status of the process to errDied.
func explain(ctx context.Context, err error, pid int, status proc.Exit) error {
	if err != errDied {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("process %d ended before its program was executed: %s", pid, ending(status))
}

func ending(s proc.Exit) string {
	if s.Signal != 0 {
		return fmt.Sprintf("killed by signal %d (%s)", s.Signal, unix.Signal(s.Signal))
	}
	return fmt.Sprintf("exit status %d", s.Code)
}
