package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/network"
)

// NICs is a machine that can get and lose network interfaces while it runs.
type NICs interface {
	AddNIC(context.Context, machine.NIC) (machine.Device, error)
	RemoveDevice(context.Context, machine.Device) error
}

// Network is the network of a pod: that of a namespace of the host, which the machine takes over.
// Only the goroutine that has the turn uses the fields.
type Network struct {
	turn    chan struct{} // has room for one
	netns   *network.Network
	devices map[*network.Tap]machine.Device // of the taps that are plugged in
	gone    []*network.Tap                  // of links that are gone; they are not yet unplugged
	taps    []*network.Tap                  // that are not yet plugged in
	want    network.Config                  // of the last look
	have    *network.Config                 // of the machine; nil if a change has failed
	users   *channel.Mappings               // of the user namespace to which the network belongs in the machine; or nil
	late    error                           // names the links that came after the boot of a machine whose type gets none then; nil without such links
	used    bool                            // an app has joined the network
	started bool                            // an app was started in it
	forward forwarder
}

// NewNetwork returns the network of the namespace of a path, which is taken over as it is now. Frames
// wait until the machine has the NICs. Without a path the first app brings the namespace.
func NewNetwork(path string) (*Network, error) {
	n := &Network{turn: make(chan struct{}, 1), devices: map[*network.Tap]machine.Device{}, have: &network.Config{}}
	if path == "" {
		return n, nil
	}
	if err := n.open(path); err != nil {
		return nil, err
	}
	if err := n.look(true); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

func (n *Network) open(path string) (err error) {
	n.netns, err = network.Open(path)
	if errors.Is(err, network.ErrHost) {
		return serve.Unsupported("linux.namespaces: %v", err)
	}
	return err
}

// NICs returns the network interfaces of the last look that the machine has not got yet.
func (n *Network) NICs() (all []machine.NIC) {
	for _, t := range n.taps {
		all = append(all, nic(t))
	}
	return all
}

// nic is the network interface of a tap. The agent sets the MTU, which may change.
func nic(t *network.Tap) machine.NIC {
	return machine.NIC{Tap: t.File, MAC: net.HardwareAddr(t.MAC[:])}
}

// Close removes the taps. The machine has ended.
func (n *Network) Close() {
	if n.netns != nil {
		_ = n.netns.Close()
		n.netns = nil
	}
}

// look makes taps for the links that the namespace has now. If a part of the namespace is impossible
// for a machine, the error has exit code 7. A strict look then changes nothing; another one makes the
// taps for the rest first.
func (n *Network) look(strict bool) error {
	c, refused, err := n.netns.Look()
	if err != nil {
		return err
	}
	if len(refused) > 0 {
		err = serve.Unsupported("the network namespace: %s", strings.Join(refused, "; "))
		if strict {
			return err
		}
	}
	added, gone, failed := n.netns.Follow(c)
	if failed != nil {
		return failed
	}
	n.want, n.gone = c, gone
	n.taps = append(slices.DeleteFunc(n.taps, func(t *network.Tap) bool { return slices.Contains(gone, t) }), added...)
	return err
}

// plug gives the machine the NICs and the configuration of the last look. Links that a machine of its type cannot get any more are left
// out, and late names them. A NIC that it cannot lose has no link, until the link comes back.
func (n *Network) plug(ctx context.Context, s *Supervisor) error {
	n.forward.begin(s)
	n.late = nil
	for _, t := range n.gone {
		if d, ok := n.devices[t]; ok {
			if err := s.NICs.RemoveDevice(ctx, d); isFixed(err) {
				continue
			} else if err != nil {
				return err
			}
			delete(n.devices, t)
		}
		if err := n.netns.Remove(t); err != nil {
			return err
		}
	}
	for len(n.taps) > 0 {
		t := n.taps[0]
		d, err := s.NICs.AddNIC(ctx, nic(t))
		switch {
		case isFixed(err):
			if l := n.want.Link(t); l != nil {
				n.late = errors.Join(n.late, serve.Unsupported("the network namespace: the link %s: %v", l.Name, err))
				n.want = n.want.Without(l.Name)
			}
			if err := n.netns.Remove(t); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			n.devices[t] = d
		}
		n.taps = n.taps[1:]
	}
	if n.have != nil && reflect.DeepEqual(*n.have, n.want) {
		return nil
	}
	n.have = nil
	text, err := json.Marshal(n.want)
	if err != nil {
		return err
	}
	_, err = s.ask(ctx, channel.Header{Network: text}, nil)
	// Also if a part of it has failed: the rest works.
	if err = errors.Join(err, n.netns.Release(slices.Collect(maps.Keys(n.devices))...)); err != nil {
		return err
	}
	have := n.want
	n.have = &have
	return nil
}

// isFixed reports whether an error is of a change that no machine of its type can have.
func isFixed(err error) bool { return errors.As(err, new(machine.FixedError)) }

// missing returns an error for the links that the machine has not got, if no app has been started without them. The caller has the turn.
func (n *Network) missing() error {
	if n.started {
		return nil
	}
	return n.late
}

// followTime is how long a change of the network may take, longer than stage 0 waits for an answer: a
// change that takes longer than its call is not undone.
const followTime = time.Minute

// own makes the user namespace of the pod, to which the network belongs in the machine from then on.
func (n *Network) own(ctx context.Context, s *Supervisor, users *channel.Mappings) error {
	if _, err := s.ask(ctx, channel.Header{Users: users}, nil); err != nil {
		return fmt.Errorf("the user namespace of the pod: %w", err)
	}
	n.users = users
	return nil
}

// join takes over the network namespace of an app that is added. Without a path the app has a
// namespace of its own; the first app's becomes the machine's. want are the mappings of the app's user namespace,
// or nil if it asks for none of its own. have are those of the pod's user namespace, or nil if the pod has none.
func (s *Supervisor) join(ctx context.Context, path string, want *channel.Mappings) (have *channel.Mappings, err error) {
	n := s.Network
	var users *channel.Mappings
	err = s.change(ctx, func(ctx context.Context) (err error) {
		defer func() { n.used, users = n.used || err == nil, n.users }()
		switch {
		case want == nil || reflect.DeepEqual(n.users, want):
		case n.users != nil:
			return serve.Unsupported("linux.uidMappings: the apps of a machine have one user namespace, and the mappings of the pod's are others")
		case n.used:
			return serve.Unsupported("linux.namespaces: the apps of a machine have one user namespace, and the pod was made without one")
		default:
			if err := n.own(ctx, s, want); err != nil {
				return err
			}
		}
		switch {
		case n.netns == nil && path == "":
			n.netns, err = network.Make()
			return err
		case n.netns == nil:
			if err = n.open(path); err == nil {
				if err = n.look(true); err != nil {
					n.Close() // another app may bring another namespace
				}
			}
		case path != "":
			var same bool
			if same, err = n.netns.Is(path); err != nil || same {
				break
			}
			var other Network
			if err = other.open(path); err == nil { // it is not the host's
				other.Close()
				err = serve.Unsupported("linux.namespaces: %s is another network namespace than that of the machine", path)
			}
		}
		if err != nil {
			return err
		}
		return errors.Join(n.plug(ctx, s), n.missing())
	})
	if err != nil {
		return nil, err
	}
	return users, nil
}

// follow takes over the changes of the machine's network namespace. It is quick if there are none.
func (s *Supervisor) follow(ctx context.Context) error {
	n := s.Network
	return s.change(ctx, func(ctx context.Context) error {
		err := n.follow(ctx, s)
		return errors.Join(err, n.late)
	})
}

// followForStart is follow for the start of an app. Once an app was started, others do without the links that are missing.
func (s *Supervisor) followForStart(ctx context.Context) error {
	n := s.Network
	return s.change(ctx, func(ctx context.Context) error {
		err := errors.Join(n.follow(ctx, s), n.missing())
		n.started = n.started || err == nil
		return err
	})
}

// follow is Supervisor.follow, without an error for missing links. The caller has the turn.
func (n *Network) follow(ctx context.Context, s *Supervisor) error {
	if n.netns == nil {
		return nil
	}
	err := n.look(false)
	return errors.Join(err, n.plug(ctx, s))
}

// change calls f when it is its turn. It does not wait longer than its caller does; f goes on, until
// the pod is stopped.
func (s *Supervisor) change(ctx context.Context, f func(context.Context) error) error {
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		return errStopping
	}
	s.making.Add(1)
	s.mu.Unlock()
	lasting, cancel := context.WithTimeout(s.ctx, followTime)
	done := make(chan error, 1)
	go func() {
		defer s.making.Done()
		defer cancel()
		select {
		case s.Network.turn <- struct{}{}:
			defer func() { <-s.Network.turn }()
			done <- f(lasting)
		case <-lasting.Done():
			done <- lasting.Err()
		}
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// within calls f on a thread in the machine's network namespace.
func (n *Network) within(f func() error) error {
	if n.netns == nil {
		return errors.New("the machine has no network namespace yet")
	}
	return n.netns.Do(f)
}
