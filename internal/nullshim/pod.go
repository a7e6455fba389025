package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/shim"
)

// nullPod keeps processes in memory. A process whose program is `true` ends when it is started,
// and any other when it is killed. Their pids are that of this shim.
type nullPod struct {
	shim.Pod // nil: the benchmark calls no other method
	events   pod.Events

	mu    sync.Mutex
	procs map[key]*process
}

type key struct {
	app  pod.AppID
	exec pod.ExecID
}

type process struct {
	stdio  pod.Stdio
	args   []string
	status pod.Status
	ended  chan struct{}
}

func newNullPod(events pod.Events) *nullPod {
	return &nullPod{events: events, procs: map[key]*process{}}
}

func (p *nullPod) CreateApp(_ context.Context, c pod.AppConfig) (pod.Status, error) {
	q := &process{c.Stdio, c.Spec.OCI.Process.Args, pod.Status{PID: os.Getpid(), State: pod.Created, Tag: c.Tag}, make(chan struct{})}
	if err := p.add(key{c.ID, ""}, q); err != nil {
		return pod.Status{}, err
	}
	if err := c.Stdio.Begin(nil); err != nil {
		return pod.Status{}, err
	}
	p.events.Publish(pod.Event{Kind: pod.EventCreated, App: c.ID, PID: q.status.PID, Tag: c.Tag})
	return q.status, nil
}

func (p *nullPod) AddExec(_ context.Context, id pod.AppID, c pod.ExecConfig) error {
	q := &process{c.Stdio, c.Process.OCI.Args, pod.Status{State: pod.Created, Tag: c.Tag}, make(chan struct{})}
	if err := p.add(key{id, c.ID}, q); err != nil {
		return err
	}
	p.events.Publish(pod.Event{Kind: pod.EventExecAdded, App: id, Exec: c.ID})
	return nil
}

func (p *nullPod) add(k key, q *process) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.procs[k] != nil {
		_ = q.stdio.Close()
		return fmt.Errorf("%v: %w", k, errdefs.ErrAlreadyExists)
	}
	p.procs[k] = q
	return nil
}

// find returns a process and its status.
func (p *nullPod) find(k key) (*process, pod.Status, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.procs[k]
	if q == nil {
		return nil, pod.Status{}, fmt.Errorf("%v: %w", k, errdefs.ErrNotFound)
	}
	return q, q.status, nil
}

func (p *nullPod) Start(_ context.Context, id pod.AppID, exec pod.ExecID) (int, error) {
	k := key{id, exec}
	q, _, err := p.find(k)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	q.status.PID, q.status.State = os.Getpid(), pod.Running
	p.mu.Unlock()
	kind := pod.EventStarted
	if exec != "" {
		kind = pod.EventExecStarted
		if err := q.stdio.Begin(nil); err != nil {
			return 0, err
		}
	}
	p.events.Publish(pod.Event{Kind: kind, App: id, Exec: exec, PID: os.Getpid()})
	if q.args[0] == "true" {
		p.end(k, q, 0)
	}
	return os.Getpid(), nil
}

func (p *nullPod) end(k key, q *process, code uint32) {
	p.mu.Lock()
	q.status.State, q.status.Exit = pod.Stopped, pod.Exit{Code: code, At: time.Now()}
	s := q.status
	p.mu.Unlock()
	_ = q.stdio.Close()
	p.events.Publish(pod.Event{Kind: pod.EventExited, App: k.app, Exec: k.exec, PID: s.PID, Exit: s.Exit, Tag: s.Tag})
	close(q.ended)
}

func (p *nullPod) Status(id pod.AppID, exec pod.ExecID) (pod.Status, error) {
	_, s, err := p.find(key{id, exec})
	return s, err
}

func (p *nullPod) Wait(ctx context.Context, id pod.AppID, exec pod.ExecID) (pod.Exit, error) {
	q, _, err := p.find(key{id, exec})
	if err != nil {
		return pod.Exit{}, err
	}
	select {
	case <-q.ended:
		return q.status.Exit, nil
	case <-ctx.Done():
		return pod.Exit{}, ctx.Err()
	}
}

func (p *nullPod) Kill(_ context.Context, id pod.AppID, exec pod.ExecID, sig int, _ bool) error {
	k := key{id, exec}
	q, s, err := p.find(k)
	switch {
	case err != nil:
		return err
	case s.State == pod.Stopped:
		return fmt.Errorf("process already finished: %w", errdefs.ErrNotFound)
	}
	p.end(k, q, 128+uint32(sig))
	return nil
}

// CloseStdin does as a pod does: ctr calls it when its own input has ended.
func (p *nullPod) CloseStdin(id pod.AppID, exec pod.ExecID) error {
	q, _, err := p.find(key{id, exec})
	if err != nil {
		return err
	}
	return q.stdio.CloseStdin()
}

func (p *nullPod) Delete(_ context.Context, id pod.AppID, exec pod.ExecID) (pod.Status, error) {
	q, s, err := p.find(key{id, exec})
	if err != nil {
		return pod.Status{}, err
	}
	p.mu.Lock()
	delete(p.procs, key{id, exec})
	p.mu.Unlock()
	_ = q.stdio.Close()
	if exec == "" {
		p.events.Publish(pod.Event{Kind: pod.EventDeleted, App: id, PID: s.PID, Exit: s.Exit})
	}
	return s, nil
}

func (p *nullPod) Empty(but pod.AppID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.procs {
		if k.exec == "" && k.app != but {
			return false
		}
	}
	return true
}

func (p *nullPod) Ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, q := range p.procs {
		if k.exec == "" && q.status.State != pod.Stopped {
			return false
		}
	}
	return len(p.procs) > 0
}

func (p *nullPod) Close(context.Context) error { return nil }
