package supervisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

// ProxyName is the name of a proxy.
const ProxyName = "kvm-proxy"

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
		Idle:  &fork.Idle{Name: ProxyName, Root: root, Release: r},
	}
	if tty != nil {
		p.Idle.Terminal, p.Idle.Sizes = tty.slave, tty.report
	}
	switch {
	case group == nil:
	case group.Version == 2:
		if p.Cgroup, err = proc.OpenFile(group.Dirs[0], unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
			return nil, nil, fmt.Errorf("open the app's cgroup: %w", err)
		}
		defer p.Cgroup.Close()
		p.Apart = true // the app may be paused during the clone
	default:
		for _, dir := range group.Dirs {
			p.Tasks = append(p.Tasks, filepath.Join(dir, "tasks"))
		}
	}
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
