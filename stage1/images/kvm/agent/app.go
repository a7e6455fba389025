package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
)

// cgroups is the cgroup in the guest below which each app has its own.
const cgroups = "/rkt/"

// app is an app in the machine.
type app struct {
	name    string
	volumes []volume
	group   *cgroup.Group
	oom     *cgroup.OOMWatch
}

func (a *agent) app(name string) (*app, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.apps[name]; p != nil {
		return p, nil
	}
	return nil, serve.NotFound("app %s: there is no such app", name)
}

// add serves app/add. If it fails, nothing of the app remains.
func (a *agent) add(ctx context.Context, c *call) (err error) {
	var spec specs.Spec
	if err := plainjson.Decode(c.Call.Spec, &spec); err != nil {
		return fmt.Errorf("the app's spec: %w", err)
	}
	if spec.Linux == nil {
		spec.Linux = &specs.Linux{}
	}
	p := &app{name: c.Call.App}
	if p.volumes, err = makeNodes(ctx, c.Volumes); err != nil {
		return errors.Join(err, removeNodes(p.name))
	}
	if r := spec.Linux.Resources; r != nil {
		r.Devices = rulesInside(r.Devices, p.volumes)
	}
	if p.group, err = (cgroup.Maker{}).Create(cgroup.Path{Spec: cgroups + p.name}, spec.Linux.Resources); err != nil {
		return errors.Join(err, removeNodes(p.name))
	}
	a.mu.Lock()
	a.apps[p.name] = p // the app may end before its call does
	a.mu.Unlock()
	defer func() {
		if err != nil {
			err = errors.Join(err, a.drop(p))
		}
	}()
	if c.Root != nil {
		if err := mountRoot(ctx, p.name, c.Root); err != nil {
			return err
		}
	}
	if c.Shm != nil {
		if err := a.mountShm(ctx, c.Shm); err != nil {
			return err
		}
	}
	if p.oom, err = a.ooms.Watch(p.group, func() { a.notify(abi.Notice{OOM: true, App: p.name}) }); err != nil {
		return err
	}
	if err := a.process(ctx, c, p); err != nil {
		return err
	}
	if uid, ok := cgroup.Owner(&spec); ok { // the process is in the cgroup: it had lost the right to enter it
		return p.group.Delegate(uid)
	}
	return nil
}

// undoTime is how long the processes of an app that is dropped may take to end.
const undoTime = time.Minute

// drop forgets an app and removes its cgroup, also when the call has ended.
func (a *agent) drop(p *app) error {
	ctx, cancel := context.WithTimeout(context.Background(), undoTime)
	defer cancel()
	a.mu.Lock()
	delete(a.apps, p.name)
	a.mu.Unlock()
	a.terminals.endAll(p.name)
	err := errors.Join(p.oom.Close(), p.group.Kill(ctx), p.group.Remove(ctx), unmountRoot(p.name), removeNodes(p.name))
	forgetFiles()
	return err
}

// process makes the process of an app or exec, with its streams.
func (a *agent) process(ctx context.Context, c *call, p *app) (err error) {
	r := *c.Call
	r.Cgroup = p.group.ABI()
	var made abi.Ready
	asked := &serve.Asked{Request: &r, Made: func(r abi.Ready) { made = r }}
	if r.Terminal {
		err = a.withTerminal(ctx, asked, c.streams[0])
	} else {
		err = a.withPipes(ctx, asked, c.streams)
	}
	if err != nil {
		return err
	}
	return c.ready(made)
}

func (a *agent) withPipes(ctx context.Context, asked *serve.Asked, streams []data) (err error) {
	if asked.Stdio, err = pipes(streams); err != nil {
		return err
	}
	defer closeAll(asked.Stdio[:]...)
	return a.pod.Dispatch(ctx, asked)
}

// enter serves enter.
func (a *agent) enter(ctx context.Context, c *call) error {
	p, err := a.app(c.Call.App)
	if err != nil {
		return err
	}
	return a.process(ctx, c, p)
}

// ended does for an app that has ended what stage 0 does: it publishes an OOM kill before the
// exit, and kills what the first process has left.
func (a *agent) ended(name string) {
	p, err := a.app(name)
	if err != nil {
		return
	}
	p.oom.Report()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), undoTime)
		defer cancel()
		_ = p.group.Kill(ctx)
	}()
}

// remove serves app/rm.
func (a *agent) remove(ctx context.Context, r *abi.Request) error {
	if err := a.pass(ctx, r); err != nil {
		return err
	}
	p, err := a.app(r.App)
	if err != nil {
		return nil // it is gone
	}
	return a.drop(p)
}

// signal serves app/signal.
func (a *agent) signal(ctx context.Context, p *app, r *abi.Request) error {
	if !r.All {
		return a.pass(ctx, r)
	}
	sig := unix.Signal(r.Signal)
	if sig == unix.SIGKILL {
		return p.group.Kill(ctx)
	}
	return p.group.Signal(sig)
}

func (p *app) update(text []byte) error {
	var res specs.LinuxResources
	if err := json.Unmarshal(text, &res); err != nil {
		return fmt.Errorf("the limits: %w", err)
	}
	res.Devices = rulesInside(res.Devices, p.volumes)
	_, err := p.group.Update(&res)
	return err
}
