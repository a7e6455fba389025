package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/pod/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seqpacket"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/server"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/wire"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/rktfront"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/rktfront/relay"
)

// pod is the pod whose directory is the working directory.
type pod struct {
	scripts  string // directory of the entrypoints
	options  *rktfront.Options
	children *proc.Children
	relay    *relay.Relay // between the terminal of run and the app's, if they have any

	mu   sync.Mutex
	apps map[string]*process
}

// runPod is `run`: it returns the exit code when the pod is over.
func runPod(scripts string, args []string) int {
	err := serve(scripts, args)
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, err)
	}
	return codeOf(err)
}

func serve(scripts string, args []string) error {
	options, err := rktfront.Run(args)
	if err != nil {
		return err
	}
	if err := keepLock(); err != nil {
		return err
	}
	signal.Ignore(unix.SIGPIPE, unix.SIGHUP)
	sigterm := make(chan os.Signal, 1)
	signal.Notify(sigterm, unix.SIGTERM)
	if err := proc.SetSubreaper(); err != nil {
		return err
	}
	p := &pod{scripts: scripts, options: options, children: proc.NewChildren(), apps: map[string]*process{}}
	listener, err := seqpacket.Listen(wire.Socket)
	if err != nil {
		return err
	}
	serving, endServing := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	stop := sync.OnceFunc(func() { close(stopped) })
	calls := server.Server{Dispatch: p.dispatch, Code: codeOf, Log: os.Stderr, Answered: func(c *wire.Call) {
		if c.Entrypoint == abi.Stop {
			stop()
		}
	}}
	var served sync.WaitGroup
	served.Go(func() { calls.Serve(serving, listener) })
	err = p.live(sigterm, stopped)
	_ = p.relay.Close() // the terminal may have gone
	endServing()
	listener.Close()
	_ = os.Remove(wire.Socket)
	served.Wait()
	_, late := p.script(p.request(abi.GC, ""), nowhere) // what was added meanwhile
	return errors.Join(err, late)
}

// keepLock keeps the lock's descriptor open in this process alone, in no file's care.
func keepLock() error {
	fd, err := strconv.Atoi(os.Getenv(abi.EnvLockFD))
	if err != nil {
		return fmt.Errorf("run: there is no %s", abi.EnvLockFD)
	}
	unix.CloseOnExec(fd)
	return nil
}

// live makes the apps that the pod begins with, tells rkt that it runs, and returns when
// it is over. Such apps are its end, and a failure of theirs is its exit code.
func (p *pod) live(sigterm <-chan os.Signal, stopped <-chan struct{}) error {
	if p.options.Mutable {
		if err := rktfront.Tell("pid"); err != nil {
			return err
		}
		select {
		case <-sigterm:
			return p.stop(false)
		case <-stopped:
			return nil
		}
	}
	over := make(chan int, 1)
	apps, err := p.beginAll()
	if err == nil {
		go func() { // ends with the apps, or with us
			code := firstFailure(apps)
			p.relay.Drain(context.Background())
			over <- code
		}()
		select {
		case <-sigterm:
		case <-stopped:
			return nil
		case code := <-over:
			if code != 0 {
				err = &failure{code: code}
			}
		}
	}
	return errors.Join(err, p.stop(false))
}

// beginAll makes and starts all apps of the manifest.
func (p *pod) beginAll() ([]*process, error) {
	names, err := rktfront.Apps()
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errors.New("the pod has no app, and is not mutable")
	}
	if p.relay, err = p.options.Terminal(len(names)); err != nil {
		return nil, err
	}
	var apps []*process
	for _, name := range names {
		r, err := rktfront.App(name)
		if err == nil {
			err = rktfront.OnTerminal(r, p.relay)
		}
		if err != nil {
			return nil, err
		}
		q, err := p.add(r)
		if err != nil {
			return nil, fmt.Errorf("app %s: %w", name, err)
		}
		apps = append(apps, q)
	}
	// Who asks for an only app looks for the only child.
	if err := rktfront.Tell(map[bool]string{true: "ppid", false: "pid"}[len(names) == 1]); err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, err := p.script(p.request(abi.AppStart, name), nowhere); err != nil {
			return nil, fmt.Errorf("app %s: %w", name, err)
		}
	}
	return apps, nil
}

// firstFailure waits until all apps have ended, and returns the exit code of the first
// of them that has failed.
func firstFailure(apps []*process) int {
	code := 0
	for _, q := range apps {
		if <-q.done; code == 0 {
			code = q.code
		}
	}
	return code
}

// stop ends all apps and has them forgotten. Unless it is forced it returns when their
// ends are recorded.
func (p *pod) stop(force bool) error {
	_, err := p.script(p.request(abi.GC, ""), nowhere)
	if err != nil || force {
		return err
	}
	p.mu.Lock()
	apps := slices.Collect(maps.Values(p.apps))
	p.mu.Unlock()
	for _, q := range apps {
		<-q.done
	}
	return nil
}
