package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/network"
)

// guestNetwork is the machine's network, in which all apps are.
type guestNetwork struct {
	turn   chan struct{} // has room for one; whoever has the turn uses guest and driver
	guest  *network.Guest
	driver bool // the driver of NICs is loaded

	// namespace belongs to the user namespace of the pod. It is nil while the network is in the agent's own.
	namespace atomic.Pointer[os.File]
}

// use calls f with the network when it is the caller's turn.
func (n *guestNetwork) use(ctx context.Context, f func(*network.Guest) error) error {
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if n.guest == nil {
		own, err := os.Open("/proc/self/ns/net")
		if err != nil {
			return err
		}
		n.guest = network.NewGuest(own)
	}
	return f(n.guest)
}

// within calls f on a thread in the network's namespace.
func (n *guestNetwork) within(f func() error) error {
	namespace := n.namespace.Load()
	if namespace == nil {
		return f()
	}
	return network.Within(namespace, f)
}

// changeNetwork sets the machine's network up as the host describes it.
func (a *agent) changeNetwork(ctx context.Context, text []byte) error {
	c, err := network.ParseConfig(text)
	if err != nil {
		return err
	}
	n := a.network
	return n.use(ctx, func(guest *network.Guest) error {
		if !n.driver {
			if err := loadLater("virtio_net"); err != nil {
				return fmt.Errorf("load the driver of NICs: %w", err)
			}
			n.driver = true
		}
		return guest.Apply(ctx, c)
	})
}

// makeUsers makes the user namespace of the pod, and a network namespace that belongs to it: so root of a
// container may change the pod's network, and mount its sysfs. The machine's network moves there.
func (a *agent) makeUsers(ctx context.Context, m *channel.Mappings) error {
	n := a.network
	return n.use(ctx, func(guest *network.Guest) error {
		if n.namespace.Load() != nil {
			return errors.New("the pod has a user namespace already")
		}
		uids, gids := m.System()
		err := proc.InNewUserNamespace(uids, gids, unix.CLONE_NEWNET, func(pid int) error {
			return errors.Join(keepNamespace(pid, "user", channel.GuestUser), keepNamespace(pid, "net", channel.GuestNetwork))
		})
		if err != nil {
			return err
		}
		namespace, err := os.Open(channel.GuestNetwork)
		if err != nil {
			return err
		}
		n.namespace.Store(namespace)
		return guest.Move(ctx, namespace)
	})
}

// keepNamespace mounts a namespace of a process, so that it outlives the process.
func keepNamespace(pid int, kind, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/%d/ns/%s", pid, kind), path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("keep the %s namespace of the pod: %w", kind, err)
	}
	return nil
}
