package network

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/rtnetlink"
)

// Network is a network namespace that a machine takes over. It is for one goroutine at a time.
type Network struct {
	namespace *os.File
	taps      []*Tap
}

// Open opens the network namespace of a path. This process's own is refused with ErrHost.
func Open(path string) (*Network, error) {
	f, err := os.OpenFile(path, unix.O_RDONLY|unix.O_NONBLOCK, 0) // a fifo has no writer
	if err != nil {
		return nil, fmt.Errorf("open the network namespace: %w", err)
	}
	n := &Network{namespace: f}
	host, err := n.Is("/proc/self/ns/net")
	if err == nil && host {
		err = ErrHost
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("the network namespace %s: %w", path, err)
	}
	return n, nil
}

// ErrHost is the error of Open for this process's network namespace.
var ErrHost = errors.New("a machine cannot be in the host's network")

// Make makes a network namespace, which another program may configure.
func Make() (*Network, error) {
	n := &Network{}
	err := proc.OnThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			n.namespace, err = os.Open("/proc/thread-self/ns/net")
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	return n, nil
}

// Is reports whether a path is that of the namespace.
func (n *Network) Is(path string) (bool, error) {
	other, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	own, err := n.namespace.Stat()
	return err == nil && os.SameFile(own, other), err
}

// Do calls f on a thread in the namespace.
func (n *Network) Do(f func() error) error { return Within(n.namespace, f) }

// Look reads the namespace as it is now. It returns the part that a machine can take over, and names
// each other part.
func (n *Network) Look() (Config, []string, error) {
	taps := make([]uint32, 0, 2*len(n.taps))
	for _, t := range n.taps {
		taps = append(taps, t.index)
		if t.held != nil {
			taps = append(taps, t.heldIndex)
		}
	}
	return look(n.namespace, taps)
}

// Follow makes a tap for each link of c that has none, and redirects the link's frames to it after Release. It
// returns these taps, and those whose links c does not have: remove their NICs, then Remove them. A tap that stays serves
// its link again when c has it. After an error it has made no tap.
func (n *Network) Follow(c Config) (added, gone []*Tap, err error) {
	conn, err := rtnetlink.DialIn(n.namespace)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	for _, t := range n.taps {
		if !slices.ContainsFunc(c.Links, t.serves) {
			t.part(conn)
			gone = append(gone, t)
		}
	}
	for _, l := range c.Links {
		if i := slices.IndexFunc(n.taps, func(t *Tap) bool { return t.serves(l) }); i >= 0 {
			err = n.taps[i].rejoin(conn)
		} else {
			var t *Tap
			if t, err = newTap(conn, n.namespace, l); err == nil {
				n.taps, added = append(n.taps, t), append(added, t)
			}
		}
		if err != nil {
			for _, t := range added {
				n.remove(conn, t)
			}
			return nil, nil, fmt.Errorf("take over the link %s: %w", l.Name, err)
		}
	}
	return added, gone, nil
}

// Release lets the machine receive: first the frames that have come since Follow, which nothing else answers. Call
// it when the machine has the configuration. It does nothing for taps that were released.
func (n *Network) Release(taps ...*Tap) error {
	if !slices.ContainsFunc(taps, func(t *Tap) bool { return t.held != nil }) {
		return nil
	}
	conn, err := rtnetlink.DialIn(n.namespace)
	if err != nil {
		return err
	}
	defer conn.Close()
	var errs []error
	for _, t := range taps {
		errs = append(errs, t.release(conn, n.namespace))
	}
	return errors.Join(errs...)
}

// Remove stops the redirection to a tap and closes it. The kernel removes the tap when QEMU has closed
// its descriptor, too.
func (n *Network) Remove(t *Tap) error {
	conn, err := rtnetlink.DialIn(n.namespace)
	if err != nil {
		return err
	}
	defer conn.Close()
	n.remove(conn, t)
	return nil
}

// remove ignores errors: the link, or the namespace's tap, may be gone.
func (n *Network) remove(conn *rtnetlink.Conn, t *Tap) {
	t.unmirror(conn)
	t.close()
	n.taps = slices.DeleteFunc(n.taps, func(o *Tap) bool { return o == t })
}

// Close removes the taps, and closes the namespace.
func (n *Network) Close() error {
	defer n.namespace.Close()
	var errs []error
	for _, t := range slices.Clone(n.taps) {
		errs = append(errs, n.Remove(t))
	}
	return errors.Join(errs...)
}
