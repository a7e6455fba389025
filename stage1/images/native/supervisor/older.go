package supervisor

import (
	"errors"
	"fmt"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/wire"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/rktfront"
)

// asked returns what run is asked for: a request or, without one, the options of
// interface version 6.
func asked() (*abi.Request, *rktfront.Options, error) {
	if os.Getenv(abi.EnvRequest) == "" {
		o, err := rktfront.Run(os.Args[1:])
		return &abi.Request{}, o, err
	}
	r, err := runRequest()
	return r, nil, err
}

// olderAdd returns a call of app/add with the streams of run: those of version 6's
// app/add end with it.
func olderAdd() *wire.Call {
	return &wire.Call{Entrypoint: abi.AppAdd, Stdio: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}}
}

// share starts the process that holds what the apps of the pod share, if they share
// anything.
func (s *Supervisor) share() (*child, error) {
	names, err := rktfront.Apps()
	if err != nil {
		return nil, err
	}
	r, err := s.older.Sharing(len(names))
	if r == nil || err != nil {
		return nil, err
	}
	holder, err := s.hold(r)
	if err != nil {
		return nil, err
	}
	s.shared = true
	return holder, s.older.Held(holder.pid)
}

// runApps runs the apps of an immutable pod, and tells that a pod of version 6 runs.
func (s *Supervisor) runApps() ([]*child, error) {
	switch {
	case s.older == nil:
		return nil, nil
	case s.older.Mutable:
		return nil, rktfront.Tell("pid")
	}
	names, err := rktfront.Apps()
	if err == nil && len(names) == 0 {
		err = errors.New("the pod has no app, and is not mutable")
	}
	if err != nil {
		return nil, err
	}
	if s.relay, err = s.older.Terminal(len(names)); err != nil {
		return nil, err
	}
	var apps []*child
	for _, name := range names {
		c, err := s.addOlder(name)
		if err != nil {
			return nil, err
		}
		apps = append(apps, c)
	}
	// Who asks for an only app looks for the only child.
	if err := rktfront.Tell(map[bool]string{true: "ppid", false: "pid"}[len(names) == 1]); err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := s.start(s.ctx, &abi.Request{App: name}); err != nil {
			return nil, fmt.Errorf("app %s: %w", name, err)
		}
	}
	return apps, nil
}

// addOlder makes an app of the pod's manifest.
func (s *Supervisor) addOlder(name string) (*child, error) {
	r, err := rktfront.App(name)
	if err == nil {
		err = rktfront.OnTerminal(r, s.relay)
	}
	if err != nil {
		return nil, err
	}
	if err := s.add(s.ctx, olderAdd(), r); err != nil {
		return nil, fmt.Errorf("app %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apps[name].launch.child, nil
}

// firstFailure waits until all apps have ended, and returns the exit code of the first
// of them that has failed.
func firstFailure(apps []*child) int {
	code := 0
	for _, c := range apps {
		if st := c.end(); code == 0 {
			code = st.Code
		}
	}
	return code
}
