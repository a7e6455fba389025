package shim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// fakePod keeps apps in memory. It publishes events as a pod must; processes end
// when a test says so.
type fakePod struct {
	fakeSandbox
	events pod.Events

	// Called before the work of the method, unless nil.
	onCreate  func(pod.AppConfig) error
	onAddExec func(pod.ExecConfig) error
	onDelete  func(pod.AppID)
	onStart   func(pod.AppID) error // an error ends the app without an event
	onEnded   func()                // called when Ended has its answer

	onDebug func() pod.Debug // nil: the stage1 cannot

	onCheckpoint func(abi.Checkpoint) // nil: the stage1 cannot

	mu     sync.Mutex
	procs  map[string]*fakeProcess
	config map[pod.AppID]pod.AppConfig
	execs  map[pod.ExecID]pod.ExecConfig
	nextID int
	closed bool
	killed []fakeKill

	stats   pod.Stats
	updates []string // id and resources
}

type fakeKill struct {
	app  pod.AppID
	exec pod.ExecID
	sig  int
	all  bool
}

type fakeProcess struct {
	app   pod.AppID
	exec  pod.ExecID
	stdio pod.Stdio
	st    pod.Status
	done  chan struct{}
}

var _ Pod = (*fakePod)(nil)

func newFakePod(e pod.Events) *fakePod {
	return &fakePod{
		events: e,
		procs:  map[string]*fakeProcess{},
		config: map[pod.AppID]pod.AppConfig{},
		execs:  map[pod.ExecID]pod.ExecConfig{},
		nextID: 1000,
	}
}

func fakeKey(id pod.AppID, exec pod.ExecID) string { return string(id) + "/" + string(exec) }

func (p *fakePod) find(id pod.AppID, exec pod.ExecID) (*fakeProcess, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q, ok := p.procs[fakeKey(id, exec)]
	if !ok {
		return nil, fmt.Errorf("%s/%s: %w", id, exec, errdefs.ErrNotFound)
	}
	return q, nil
}

func (p *fakePod) add(q *fakeProcess) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := fakeKey(q.app, q.exec)
	if _, ok := p.procs[key]; ok {
		return fmt.Errorf("%s: %w", key, errdefs.ErrAlreadyExists)
	}
	q.done = make(chan struct{})
	q.st.State = pod.Created
	p.procs[key] = q
	return nil
}

func (p *fakePod) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nextID++
	return p.nextID
}

func (p *fakePod) CreateApp(_ context.Context, c pod.AppConfig) (pod.Status, error) {
	if p.onCreate != nil {
		if err := p.onCreate(c); err != nil {
			_ = c.Stdio.Close()
			return pod.Status{}, err
		}
	}
	q := &fakeProcess{app: c.ID, stdio: c.Stdio, st: pod.Status{PID: p.pid(), Terminal: c.Terminal, Tag: c.Tag}}
	if err := p.add(q); err != nil {
		_ = c.Stdio.Close()
		return pod.Status{}, err
	}
	p.mu.Lock()
	p.config[c.ID] = c
	p.mu.Unlock()
	if err := c.Stdio.Begin(nil); err != nil {
		return pod.Status{}, err
	}
	p.events.Publish(pod.Event{Kind: pod.EventCreated, App: c.ID, PID: q.st.PID, Tag: c.Tag})
	return q.st, nil
}

func (p *fakePod) AddDebug(id pod.AppID) (pod.Debug, error) {
	if _, err := p.find(id, ""); err != nil {
		return nil, err
	}
	if p.onDebug == nil {
		return nil, errdefs.ErrNotImplemented
	}
	return p.onDebug(), nil
}

func (p *fakePod) AddExec(_ context.Context, id pod.AppID, c pod.ExecConfig) error {
	if _, err := p.find(id, ""); err != nil {
		_ = c.Stdio.Close()
		return err
	}
	if p.onAddExec != nil {
		if err := p.onAddExec(c); err != nil {
			_ = c.Stdio.Close()
			return err
		}
	}
	p.mu.Lock()
	p.execs[c.ID] = c
	p.mu.Unlock()
	if err := p.add(&fakeProcess{app: id, exec: c.ID, stdio: c.Stdio, st: pod.Status{Terminal: c.Terminal, Tag: c.Tag}}); err != nil {
		_ = c.Stdio.Close()
		return err
	}
	p.events.Publish(pod.Event{Kind: pod.EventExecAdded, App: id, Exec: c.ID})
	return nil
}

func (p *fakePod) Start(_ context.Context, id pod.AppID, exec pod.ExecID) (int, error) {
	q, err := p.find(id, exec)
	if err != nil {
		return 0, err
	}
	kind := pod.EventStarted
	pid := p.pid()
	p.mu.Lock()
	if q.st.State != pod.Created {
		defer p.mu.Unlock()
		return 0, fmt.Errorf("cannot start a %s process: %w", q.st.State, errdefs.ErrFailedPrecondition)
	}
	if p.onStart != nil {
		if err := p.onStart(id); err != nil {
			defer p.mu.Unlock()
			q.st.State = pod.Stopped
			return 0, err
		}
	}
	q.st.State = pod.Running
	if exec != "" {
		kind, q.st.PID = pod.EventExecStarted, pid
	}
	pid = q.st.PID
	p.mu.Unlock()
	p.events.Publish(pod.Event{Kind: kind, App: id, Exec: exec, PID: pid})
	return pid, nil
}

// exit ends a process.
func (p *fakePod) exit(id pod.AppID, exec pod.ExecID, code uint32) {
	q, err := p.find(id, exec)
	if err != nil {
		panic(err)
	}
	p.mu.Lock()
	q.st.State = pod.Stopped
	q.st.Exit = pod.Exit{Code: code, At: time.Now()}
	st := q.st
	p.mu.Unlock()
	p.events.Publish(pod.Event{Kind: pod.EventExited, App: id, Exec: exec, PID: st.PID, Exit: st.Exit, Tag: st.Tag})
	close(q.done)
}

func (p *fakePod) Status(id pod.AppID, exec pod.ExecID) (pod.Status, error) {
	q, err := p.find(id, exec)
	if err != nil {
		return pod.Status{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return q.st, nil
}

func (p *fakePod) Wait(ctx context.Context, id pod.AppID, exec pod.ExecID) (pod.Exit, error) {
	q, err := p.find(id, exec)
	if err != nil {
		return pod.Exit{}, err
	}
	select {
	case <-q.done:
	case <-ctx.Done():
		return pod.Exit{}, ctx.Err()
	}
	st, err := p.Status(id, exec)
	return st.Exit, err
}

func (p *fakePod) Kill(_ context.Context, id pod.AppID, exec pod.ExecID, sig int, all bool) error {
	st, err := p.Status(id, exec)
	if err != nil {
		return err
	}
	if st.State == pod.Stopped {
		return fmt.Errorf("process already finished: %w", errdefs.ErrNotFound)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = append(p.killed, fakeKill{id, exec, sig, all})
	return nil
}

func (p *fakePod) Pause(_ context.Context, id pod.AppID) error {
	return p.move(id, pod.Running, pod.Paused, pod.EventPaused)
}

func (p *fakePod) Resume(_ context.Context, id pod.AppID) error {
	return p.move(id, pod.Paused, pod.Running, pod.EventResumed)
}

func (p *fakePod) Update(_ context.Context, id pod.AppID, resources []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updates = append(p.updates, string(id)+" "+string(resources))
	return nil
}

func (p *fakePod) Stats(_ context.Context, id pod.AppID) (pod.Stats, error) {
	if _, err := p.find(id, ""); err != nil {
		return pod.Stats{}, err
	}
	return p.stats, nil
}

func (p *fakePod) Checkpoint(_ context.Context, id pod.AppID, c abi.Checkpoint) error {
	if p.onCheckpoint == nil {
		return fmt.Errorf("checkpoint %s: the stage1 has no app/checkpoint entrypoint: %w", id, errdefs.ErrNotImplemented)
	}
	p.onCheckpoint(c)
	p.events.Publish(pod.Event{Kind: pod.EventCheckpointed, App: id, Checkpoint: c.Path})
	return nil
}

func (p *fakePod) move(id pod.AppID, from, to pod.State, kind pod.EventKind) error {
	q, err := p.find(id, "")
	if err != nil {
		return err
	}
	p.mu.Lock()
	if q.st.State != from {
		defer p.mu.Unlock()
		return fmt.Errorf("it is %s: %w", q.st.State, errdefs.ErrFailedPrecondition)
	}
	q.st.State = to
	p.mu.Unlock()
	p.events.Publish(pod.Event{Kind: kind, App: id})
	return nil
}

func (p *fakePod) Delete(_ context.Context, id pod.AppID, exec pod.ExecID) (pod.Status, error) {
	q, err := p.find(id, exec)
	if err != nil {
		return pod.Status{}, err
	}
	if p.onDelete != nil {
		p.mu.Lock()
		q.st.Deleting = true
		p.mu.Unlock()
		p.onDelete(id)
	}
	p.mu.Lock()
	st := q.st
	if st.State != pod.Created && st.State != pod.Stopped {
		p.mu.Unlock()
		return pod.Status{}, fmt.Errorf("cannot delete a %s process: %w", st.State, errdefs.ErrFailedPrecondition)
	}
	var gone []*fakeProcess
	for key, r := range p.procs {
		if r == q || exec == "" && r.app == id {
			gone = append(gone, r)
			delete(p.procs, key)
		}
	}
	p.mu.Unlock()
	for _, r := range gone {
		_ = r.stdio.Close()
	}
	if exec == "" {
		p.events.Publish(pod.Event{Kind: pod.EventDeleted, App: id, PID: st.PID, Exit: st.Exit})
	}
	return st, nil
}

func (p *fakePod) Pids(_ context.Context, id pod.AppID) ([]pod.ProcessInfo, error) {
	st, err := p.Status(id, "")
	if err != nil {
		return nil, err
	}
	if st.State == pod.Stopped {
		return nil, fmt.Errorf("%s has ended: %w", id, errdefs.ErrFailedPrecondition)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var infos []pod.ProcessInfo
	for _, q := range p.procs {
		if q.app == id && q.st.PID != 0 {
			infos = append(infos, pod.ProcessInfo{PID: q.st.PID, Exec: q.exec})
		}
	}
	return infos, nil
}

func (p *fakePod) Resize(id pod.AppID, exec pod.ExecID, size pod.Size) error {
	q, err := p.find(id, exec)
	if err != nil {
		return err
	}
	return q.stdio.Resize(size)
}

func (p *fakePod) CloseStdin(id pod.AppID, exec pod.ExecID) error {
	q, err := p.find(id, exec)
	if err != nil {
		return err
	}
	return q.stdio.CloseStdin()
}

func (p *fakePod) Ended() bool {
	if p.onEnded != nil {
		defer p.onEnded()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.procs {
		if q.exec == "" && q.st.State != pod.Stopped {
			return false
		}
	}
	return true
}

func (p *fakePod) Empty(but pod.AppID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.procs {
		if q.exec == "" && q.app != but {
			return false
		}
	}
	return true
}

func (p *fakePod) Close(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.procs) > 0 {
		return fmt.Errorf("%d processes are left: %w", len(p.procs), errdefs.ErrFailedPrecondition)
	}
	p.closed = true
	return nil
}
