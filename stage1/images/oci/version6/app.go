package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rkt/containerd-shim-rkt-v1/pod/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/wire"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/rktfront"
)

// process is one that an entrypoint has made and left to us.
type process struct {
	done chan struct{} // closed when it was reaped, and its end is recorded
	code int           // then
}

// dispatch serves a call.
func (p *pod) dispatch(ctx context.Context, c *wire.Call) error {
	if c.Entrypoint == abi.Stop {
		return p.stop(c.Force)
	}
	r := &abi.Request{}
	if err := json.NewDecoder(c.Request).Decode(r); err != nil {
		return fmt.Errorf("the request of %s: %w", c.Entrypoint, err)
	}
	r.Pod, r.Container = p.options.UUID, p.container(r.App)
	switch c.Entrypoint {
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
	_, err := p.script(r, nowhere)
	return err
}

// container is what the OCI runtime calls an app.
func (p *pod) container(app string) string { return p.options.UUID + "." + app }

// request is that of a call that says no more than whom it is about.
func (p *pod) request(e abi.Entrypoint, app string) *abi.Request {
	r := &abi.Request{Version: abi.Version, Entrypoint: e, Pod: p.options.UUID, App: app}
	if app != "" {
		r.Container = p.container(app)
	}
	return r
}

// bundleOf is the OCI bundle of an app, which has its environment.
func bundleOf(app string) string { return filepath.Join(scratch, "bundles", app) }

// add makes an app's process. Its streams are those of run.
func (p *pod) add(r *abi.Request) (q *process, err error) {
	if r.Bundle, err = makeBundle(r); err != nil {
		return nil, fmt.Errorf("make the bundle: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(r.Bundle)
		}
	}()
	q, err = p.begin(r, [3]*os.File{os.Stdin, os.Stdout, os.Stderr}, func(e proc.Exit) {
		if err := rktfront.Record(r.App, "", e); err != nil {
			fmt.Fprintf(os.Stderr, "record the end of app %s: %v\n", r.App, err)
		}
	})
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apps[r.App] = q
	return q, nil
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
		return "", err // there is such an app
	}
	return bundle, os.WriteFile(filepath.Join(bundle, "config.json"), r.Spec, 0o600)
}

// begin executes an entrypoint that makes a process, and takes that over.
func (p *pod) begin(r *abi.Request, stdio [3]*os.File, record func(proc.Exit)) (*process, error) {
	defer p.children.Expect()()
	ready, err := p.script(r, stdio)
	if err != nil {
		return nil, err
	}
	if ready == nil {
		return nil, errors.New("no process was reported")
	}
	q := &process{done: make(chan struct{})}
	return q, p.children.Adopt(ready.PID, ready.StartTime, record, func(e proc.Exit) {
		q.code = e.Code
		close(q.done)
	})
}

// stopApp ends an app and waits until that is recorded.
func (p *pod) stopApp(ctx context.Context, r *abi.Request) error {
	if _, err := p.script(r, nowhere); err != nil {
		return err
	}
	p.mu.Lock()
	q := p.apps[r.App]
	p.mu.Unlock()
	if q == nil {
		return nil
	}
	select {
	case <-q.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *pod) remove(r *abi.Request) error {
	if _, err := p.script(r, nowhere); err != nil {
		return err
	}
	p.mu.Lock()
	delete(p.apps, r.App)
	p.mu.Unlock()
	return os.RemoveAll(bundleOf(r.App))
}

// enter executes a program in an app. The call ends when the program does, and as it does.
func (p *pod) enter(ctx context.Context, r *abi.Request, stdio [3]*os.File) error {
	r.Bundle = bundleOf(r.App)
	q, err := p.begin(r, stdio, nil)
	if err != nil {
		return err
	}
	select {
	case <-q.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if q.code != 0 {
		return &failure{code: q.code}
	}
	return nil
}
