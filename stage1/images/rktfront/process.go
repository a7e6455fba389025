package rktfront

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// name identifies the process of an app or, with exec, of an exec in the app.
type name struct{ app, exec string }

// process is a process that an entrypoint has made.
type process struct {
	name name
	abi.Ready
	mounts *os.File  // the mount namespace of an app that shares its PID namespace
	once   sync.Once // for the end
	// noticed is set if the image's supervisor is the parent, and so sends a notice of the
	// exit.
	noticed bool
	made    chan struct{} // closed when the entrypoint has ended and the fields above are set
	done    chan struct{} // closed when the end is recorded and code is set
	code    int
}

// ended records the exit of a process.
func (q *process) ended(status abi.Status) {
	q.once.Do(func() {
		var err error
		if q.mounts != nil {
			err = sweep(q.mounts)
		}
		if q.name.exec == "" {
			err = errors.Join(err, record(q.name.app, status))
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "record the end of app %s: %v\n", q.name.app, err)
		}
		q.code = status.Code
		close(q.done)
	})
}

// dropped ends the wait for a process that could not be made.
func (q *process) dropped() { q.once.Do(func() { close(q.done) }) }

// process returns a process that was made, or nil.
func (p *pod) process(app, exec string) *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running[name{app, exec}]
}

// all returns the running processes, and the apps that have ended.
func (p *pod) all() []*process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.running))
}

// dispatch serves a call.
func (p *pod) dispatch(ctx context.Context, c *serve.Asked) error {
	r := c.Request
	p.identify(r)
	switch c.Entrypoint {
	case abi.Stop:
		return p.stop(c.Force)
	case abi.AppAdd:
		_, err := p.add(r)
		return err
	case abi.AppStop:
		return p.stopApp(ctx, r)
	case abi.AppRm:
		return p.remove(r)
	case abi.Enter:
		return p.enter(ctx, r, c.Stdio)
	}
	return p.do(r)
}

// request returns a request that has only the entrypoint and the app.
func (p *pod) request(e abi.Entrypoint, app string) *abi.Request {
	r := &abi.Request{Version: abi.Version, Entrypoint: e, App: app}
	p.identify(r)
	return r
}

// identify sets the pod of a request, and the container id of its app.
func (p *pod) identify(r *abi.Request) {
	r.Pod = p.options.UUID
	if r.App != "" {
		r.Container = r.Pod + "." + r.App
	}
}

// bundleOf returns the directory of an app's OCI bundle.
func bundleOf(app string) string { return filepath.Join(front, "bundles", app) }

// add makes an app's process. The process gets the streams of `run`, because those of rkt's
// app/add end with that call.
func (p *pod) add(r *abi.Request) (q *process, err error) {
	if r.Bundle, err = makeBundle(r); err != nil {
		return nil, fmt.Errorf("make the bundle: %w", err)
	}
	q, err = p.make(r, [3]*os.File{os.Stdin, os.Stdout, os.Stderr})
	if err != nil {
		_ = os.RemoveAll(r.Bundle)
	}
	return q, err
}

// makeBundle returns the path of a new bundle with the spec of a request.
func makeBundle(r *abi.Request) (string, error) {
	bundle, err := filepath.Abs(bundleOf(r.App))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(bundle), 0o700); err != nil {
		return "", err
	}
	if err := os.Mkdir(bundle, 0o700); err != nil {
		return "", err // an app with that name exists
	}
	return bundle, os.WriteFile(filepath.Join(bundle, "config.json"), r.Spec, 0o600)
}

// make executes an entrypoint that makes a process. If the image's supervisor is not the
// parent of the process, make adopts the process.
func (p *pod) make(r *abi.Request, stdio [3]*os.File) (*process, error) {
	q := &process{name: name{r.App, r.Exec}, made: make(chan struct{}), done: make(chan struct{})}
	defer close(q.made)
	p.mu.Lock()
	p.running[q.name] = q // before a notice of the process can come
	p.mu.Unlock()
	defer p.children.Expect()()
	ready, err := p.call(r, stdio)
	if err == nil && ready == nil {
		err = errors.New("no process was reported")
	}
	if err == nil {
		err = p.keep(q, ready)
	}
	if err != nil {
		p.forget(q)
		return nil, err
	}
	return q, nil
}

// keep makes sure that the pod learns of the end of a process.
func (p *pod) keep(q *process, ready *abi.Ready) error {
	q.Ready = *ready
	if q.name.exec == "" && p.holder != nil { // fails if the process has ended
		q.mounts, _ = os.Open(fmt.Sprintf("/proc/%d/ns/mnt", q.PID))
	}
	err := p.children.Adopt(ready.PID, ready.StartTime, func(e proc.Exit) { q.ended(abi.Status(e)) }, nil)
	if q.noticed = errors.Is(err, proc.ErrNotChild) || errors.Is(err, proc.ErrGone); q.noticed {
		return nil
	}
	return err
}

func (p *pod) forget(q *process) {
	q.dropped()
	p.mu.Lock()
	delete(p.running, q.name)
	p.mu.Unlock()
}

// stopApp ends an app and waits until its exit is recorded.
func (p *pod) stopApp(ctx context.Context, r *abi.Request) error {
	if err := p.do(r); err != nil {
		return err
	}
	if q := p.process(r.App, ""); q != nil {
		return q.wait(ctx)
	}
	return nil
}

// wait returns when the process has ended.
func (q *process) wait(ctx context.Context) error {
	select {
	case <-q.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *pod) remove(r *abi.Request) error {
	if err := p.do(r); err != nil {
		return err
	}
	if q := p.process(r.App, ""); q != nil {
		p.forget(q)
	}
	return os.RemoveAll(bundleOf(r.App))
}

// enter executes a program in an app. The call ends with the program, and with its exit code.
func (p *pod) enter(ctx context.Context, r *abi.Request, stdio [3]*os.File) error {
	r.Bundle = bundleOf(r.App)
	q, err := p.make(r, stdio)
	if err != nil {
		return err
	}
	defer p.forget(q)
	if err := q.wait(ctx); err != nil {
		return err
	}
	if q.code != 0 {
		return &failure{code: q.code}
	}
	return nil
}
