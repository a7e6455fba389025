package pod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// AddExec registers a further process and starts nothing (requirements.md#T4). The app
// must be created or running. For an id that is in use it returns
// errdefs.ErrAlreadyExists.
func (p *Pod) AddExec(ctx context.Context, id AppID, c ExecConfig) error {
	a, err := p.app(id)
	if err != nil {
		return errors.Join(err, c.Stdio.Close())
	}
	if err := a.addExec(ctx, c); err != nil {
		return errors.Join(err, c.Stdio.Close())
	}
	return nil
}

// maxExecID is the maximum length of an exec's id, which is used as the name of a file.
const maxExecID = 255

// valid reports whether an exec's id has only characters that docs/stage1-abi.md allows,
// and can be the name of a file.
func (id ExecID) valid() bool {
	for _, c := range []byte(id) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return id != "" && id != "." && id != ".." && len(id) <= maxExecID
}

// ReadProcess reads the text of an exec's process, for ExecConfig. If the text is no OCI
// process, it returns errdefs.ErrInvalidArgument.
func ReadProcess(id AppID, exec ExecID, text []byte) (*spec.Process, error) {
	p, err := spec.Read[specs.Process](text)
	var syntax *json.SyntaxError
	if exec == "" || errors.As(err, &syntax) || len(text) == 0 || text[0] != '{' {
		return nil, fmt.Errorf("exec %q in container %s: the id is empty or the spec is not an OCI process: %w", exec, id, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return nil, fmt.Errorf("exec %s in container %s: not an OCI process: %v: %w", exec, id, err, errdefs.ErrInvalidArgument)
	}
	return p, nil
}

func (a *app) addExec(ctx context.Context, c ExecConfig) error {
	if !c.ID.valid() {
		return fmt.Errorf("exec %.80q in container %s: its id is not made of letters, digits, '-', '_' and '.': %w", string(c.ID), a.id, errdefs.ErrInvalidArgument)
	}
	if len(c.Process.OCI.Args) == 0 {
		return fmt.Errorf("exec %s in container %s: it has no args: %w", c.ID, a.id, errdefs.ErrInvalidArgument)
	}
	if err := errors.Join(checkUser(c.Process.OCI.User), checkConsole(&c.Process.OCI)); err != nil {
		return fmt.Errorf("exec %s in container %s: %w", c.ID, a.id, err)
	}
	if err := a.acceptsExec(c.ID); err != nil {
		return err
	}
	stage1 := a.session.stage1
	if !stage1.Has(abi.Enter) {
		return fmt.Errorf("exec %s in container %s: stage1 %s has no %s entrypoint: %w", c.ID, a.id, stage1.Name(), abi.Enter, errdefs.ErrNotImplemented)
	}
	unknown, err := stage1.CheckProcess(c.Process)
	if err != nil {
		return fmt.Errorf("exec %s in container %s: %w", c.ID, a.id, err)
	}
	unknown = append(unknown, unknownCapabilities(&c.Process.OCI)...)
	a.tellUnknown(ctx, fmt.Sprintf("the process of exec %s", c.ID), c.ID, unknown)
	e := &execution{process: newProcess(a.id, c.ID, c.Stdio, c.Terminal, a.pod.cfg.Events, a.lane.box), config: c}
	e.state, e.tag = Created, c.Tag
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.acceptsExec(c.ID); err != nil { // a deletion may have closed the execs
		return err
	}
	if _, taken := a.execs[c.ID]; taken {
		return fmt.Errorf("exec %s in container %s: %w", c.ID, a.id, errdefs.ErrAlreadyExists)
	}
	_ = e.push(Event{Kind: EventExecAdded}) // an app that has ended has no more events
	a.execs[c.ID] = e
	return nil
}

// acceptsExec returns an error unless the app is created or running.
func (a *app) acceptsExec(id ExecID) error {
	if s := a.status().State; s != Created && s != Running {
		return fmt.Errorf("exec %s: container %s is %s: %w", id, a.id, s, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// admit moves an exec to starting, unless its app is paused or has ended. After that,
// the exit of the app and a Pause wait until the caller has left the gate.
func (a *app) admit(e *execution) error {
	err := a.gate.enter(func() error {
		if s := a.status().State; s != Created && s != Running {
			return fmt.Errorf("start %s: its container is %s: %w", e.name(), s, errdefs.ErrFailedPrecondition)
		}
		return e.beginStart()
	})
	if errors.Is(err, errGateClosed) {
		return fmt.Errorf("start %s: its container has ended: %w", e.name(), errdefs.ErrFailedPrecondition)
	}
	return err
}

// startExec executes enter.
func (a *app) startExec(ctx context.Context, e *execution) (int, error) {
	if err := a.admit(e); err != nil {
		return 0, err
	}
	defer a.gate.leave()
	pid, err := a.enter(ctx, e)
	if err == nil {
		err = a.announce(ctx, e)
	}
	if err != nil {
		err = errors.Join(err, e.stdio.Close())
		e.unstarted()
		return 0, err
	}
	return pid, nil
}

// announce ends a start with success. If the start took so long that the exit of the app
// was published before, announce kills the exec and returns an error.
func (a *app) announce(ctx context.Context, e *execution) error {
	if e.push(Event{Kind: EventExecStarted}) == nil {
		return nil
	}
	a.killRest(context.WithoutCancel(ctx))
	return fmt.Errorf("start %s: its container has ended: %w", e.name(), errdefs.ErrFailedPrecondition)
}

func (a *app) enter(ctx context.Context, e *execution) (int, error) {
	if err := a.checkFrozen(e); err != nil {
		return 0, err
	}
	// If an earlier exec with the same id has left a record, it would count as the exit
	// of this one when the stage1 ends.
	if err := a.dropRecord(e.exec); err != nil {
		return 0, fmt.Errorf("start %s: %w", e.name(), err)
	}
	c := a.call(abi.Enter)
	c.Request.Exec = string(e.exec)
	c.Process = a.sized(e)
	c.Request.Cgroup = a.cgroup.ABI()
	c.Request.Terminal = e.terminal
	opts := a.config.Options
	c.Request.Options = &opts

	expect := a.pod.cfg.Children.Expect()
	defer expect()
	proc, err := a.session.stage1.Enter(ctx, c, e.stdio.Files())
	e.config.Process = nil // not needed any more: an exec is started once
	if err != nil {
		return 0, err
	}
	e.exists(proc, false)
	if err := e.stdio.Begin(proc.Console); err != nil {
		return 0, fmt.Errorf("%s: connect its streams: %w", e.name(), errors.Join(err, a.signal(ctx, e.process, killSignal)))
	}
	a.watch(ctx, e.process, proc)
	return proc.PID, nil
}

// dropRecord removes the stage1's record of an exec's exit.
func (a *app) dropRecord(exec ExecID) error {
	return a.disk.DropExec(string(exec))
}

// sized returns the process of an exec, with the size of the terminal that its client has asked for since Exec: the
// program may look at the size before the shim has the terminal. If the stage1 does not honour the field, the terminal gets
// the size when the shim has it.
func (a *app) sized(e *execution) *spec.Process {
	e.mu.Lock()
	size, asked := e.size, e.config.Process
	e.mu.Unlock()
	if size == nil {
		return asked
	}
	box := fmt.Appendf(nil, `{"height":%d,"width":%d}`, size.Height, size.Width)
	text := asked.Root.With(spec.Change{Name: "consoleSize", To: func(spec.Value) []byte { return box }})
	p, err := ReadProcess(a.id, e.exec, text)
	if err != nil {
		return asked
	}
	if _, err := a.session.stage1.CheckProcess(p); err != nil {
		return asked
	}
	return p
}
