package pod

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// settles is how long a network namespace must have no further change before the stage1 is
// told of the changes. After settlesAt it is told of them in any case.
const (
	settles   = 20 * time.Millisecond
	settlesAt = time.Second
)

// take adds a namespace, and returns false if it was added before.
func (n *networks) take(ns fs.FileInfo) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.ContainsFunc(n.watched, func(w fs.FileInfo) bool { return os.SameFile(w, ns) }) {
		return false
	}
	n.watched = append(n.watched, ns)
	return true
}

func (n *networks) release(ns fs.FileInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.watched = slices.DeleteFunc(n.watched, func(w fs.FileInfo) bool { return os.SameFile(w, ns) })
}

// during calls f, whose context ends when stop is called. After stop it does not call it.
func (n *networks) during(ctx context.Context, f func(context.Context)) {
	n.mu.Lock()
	if n.lasting.Err() != nil {
		n.mu.Unlock()
		return
	}
	n.calls.Add(1)
	n.mu.Unlock()
	defer n.calls.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.lasting, cancel)()
	f(ctx)
}

// stop ends the calls that tell the stage1 of changes, and waits for them, because each writes
// files to the pod's directory.
func (n *networks) stop() {
	n.mu.Lock()
	n.end()
	n.mu.Unlock()
	n.calls.Wait()
}

// watchNetwork begins to watch the network namespace of a path, for a stage1 that has the
// entrypoint network. It returns nil, which tell and close accept, if there is nothing to watch:
// the path is empty, the namespace is the host's, or the sandbox or another app of the session
// watches it. Changes are kept until tell is called.
func (s *session) watchNetwork(path string, call func() Call) (*networkWatch, error) {
	if path == "" || !s.stage1.Has(abi.Network) {
		return nil, nil
	}
	netns, err := os.OpenFile(path, unix.O_RDONLY|unix.O_NONBLOCK, 0) // a fifo has no writer
	if err != nil {
		return nil, fmt.Errorf("watch the network namespace: %w", err)
	}
	defer netns.Close()
	ns, err := netns.Stat()
	if err != nil {
		return nil, fmt.Errorf("watch the network namespace: %w", err)
	}
	if host, err := os.Stat("/proc/self/ns/net"); err != nil || os.SameFile(host, ns) {
		return nil, err
	}
	if !s.networks.take(ns) {
		return nil, nil
	}
	changes, err := proc.NetworkChanges(netns)
	if err != nil {
		s.networks.release(ns)
		return nil, fmt.Errorf("watch %s: %w", path, err)
	}
	return &networkWatch{session: s, ns: ns, changes: changes, call: func() Call {
		c := call()
		c.Request.Netns = path
		return c
	}}, nil
}

// watchNetwork begins to watch the network namespace that an app is to join.
func (a *app) watchNetwork() (err error) {
	path, _ := spec.Namespace(a.spec(), specs.NetworkNamespace)
	a.network, err = a.session.watchNetwork(path, a.networkCall)
	return err
}

// tellNetwork begins to tell the stage1 of changes of the app's network namespace. If the
// stage1 has made the namespace, it is told at once, because changes may have been missed.
func (a *app) tellNetwork(ctx context.Context, pid int) (err error) {
	now := a.network == nil && a.ownNet
	if now {
		if a.network, err = a.session.watchNetwork(fmt.Sprintf("/proc/%d/ns/net", pid), a.networkCall); err != nil {
			return err
		}
	}
	a.network.tell(ctx, now)
	return nil
}

func (a *app) networkCall() Call { return a.call(abi.Network) }

// tell calls the stage1 after changes, and at once if now is set, until close is called.
func (w *networkWatch) tell(ctx context.Context, now bool) {
	if w == nil {
		return
	}
	ctx = lasting(ctx)
	go func() {
		for now || w.changed() {
			now = false
			w.session.networks.during(ctx, func(ctx context.Context) {
				if err := w.session.stage1.Invoke(ctx, w.call()); err != nil && w.session.alive() {
					w.session.log(ctx, err).Warn("a change of the network namespace")
				}
			})
		}
	}()
}

// changed returns when the namespace has changed and settled. It returns false after close.
func (w *networkWatch) changed() bool {
	if err := w.changes.SetReadDeadline(time.Time{}); err != nil {
		return false
	}
	buf := make([]byte, os.Getpagesize())
	var last time.Time
	for {
		_, err := w.changes.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return true
		case err != nil && !errors.Is(err, unix.ENOBUFS):
			return false
		}
		now := time.Now()
		if last.IsZero() {
			last = now.Add(settlesAt)
		}
		end := now.Add(settles)
		if end.After(last) {
			end = last
		}
		if err := w.changes.SetReadDeadline(end); err != nil {
			return false
		}
	}
}

func (w *networkWatch) close() error {
	if w == nil {
		return nil
	}
	w.session.networks.release(w.ns)
	return w.changes.Close()
}
