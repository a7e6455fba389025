package supervisor

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

// startProxy starts a proxy: a process of the host that stands for one of the machine, and does nothing.
// It is in a cgroup, and in the network namespace that the machine takes over: programs that attach
// networks find the namespace by the proxy's pid. Its root is a detached mount, or empty if root is nil. It
// kills itself when release is closed, also by the end of this process.
func (s *Supervisor) startProxy(ctx context.Context, group *abi.Cgroup, root *os.File, tty *terminal) (proxy *proc.Child, release *os.File, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	p := &fork.Process{
		Files: []*os.File{null, null, null},
		Idle:  &fork.Idle{Name: "kvm-proxy", Root: root, Release: r},
	}
	if tty != nil {
		p.Idle.Terminal, p.Idle.Sizes = tty.slave, tty.report
	}
	dir, tasks, err := group.Ways()
	if err == nil && dir != "" {
		p.Cgroup, err = proc.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open the app's cgroup: %w", err)
	}
	defer p.Cgroup.Close()
	p.Tasks = tasks
	p.Apart = p.Cgroup != nil // the app may be paused during the clone
	var begun *fork.Begun
	proxy, err = s.Children.Make(func() (pid int, err error) {
		err = s.Network.within(func() (err error) {
			begun, err = fork.Begin(ctx, p)
			return err
		})
		if err != nil {
			return 0, err
		}
		return begun.PID, nil
	})
	if begun != nil {
		defer begun.Close()
	}
	if err != nil {
		return nil, nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = proxy.Kill() })()
	// Clients and hooks use the proxy's root, so it must have been changed before they know the pid.
	if _, err = begun.Executed(); err != nil {
		return proxy, nil, err
	}
	return proxy, w, nil
}
