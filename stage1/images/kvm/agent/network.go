package main

import (
	"context"
	"fmt"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/network"
)

// guestNetwork is the machine's network, in which all apps are.
type guestNetwork struct {
	turn  chan struct{} // has room for one; whoever has the turn uses guest
	guest *network.Guest
}

// changeNetwork sets the machine's network up as the host describes it.
func (a *agent) changeNetwork(ctx context.Context, text []byte) error {
	c, err := network.ParseConfig(text)
	if err != nil {
		return err
	}
	n := a.network
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if n.guest == nil {
		if err := loadLater("virtio_net"); err != nil {
			return fmt.Errorf("load the driver of NICs: %w", err)
		}
		own, err := os.Open("/proc/self/ns/net")
		if err != nil {
			return err
		}
		n.guest = network.NewGuest(own)
	}
	return n.guest.Apply(ctx, c)
}
