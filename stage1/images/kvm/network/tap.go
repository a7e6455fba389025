package network

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/rtnetlink"
)

// Tap is the host's end of a NIC.
type Tap struct {
	File *os.File // for QEMU; frames have a virtio_net_hdr before them
	MAC  MAC      // for the NIC

	index uint32 // of the tap, in the namespace
	link  uint32 // the index of the link that it stands for

	allMulticast bool // the link has IFF_ALLMULTI for it
	parted       bool // the link is gone, or down, or has another hardware address

	// held has the frames of the link, until Release. QEMU discards those that it receives before it has the NIC,
	// and the machine those that it receives before it has the address.
	held      *os.File
	heldIndex uint32
}

// serves reports whether the tap is that of a link. If the link has got another hardware address, it
// is not, because a NIC keeps its address.
func (t *Tap) serves(l Link) bool { return t.link == l.index && t.MAC == l.MAC }

// newTap makes a tap for a link, and redirects the frames of each to the other, those of the link after
// release. The kernel gives the tap its name.
func newTap(conn *rtnetlink.Conn, namespace *os.File, l Link) (_ *Tap, err error) {
	t := &Tap{MAC: l.MAC, link: l.index}
	defer func() {
		if err != nil {
			t.unmirror(conn)
			t.close()
		}
	}()
	if t.File, t.index, err = findTap(conn, namespace); err != nil {
		return nil, err
	}
	if t.held, t.heldIndex, err = findTap(conn, namespace); err != nil {
		return nil, err
	}
	// The tap is redirected before it is up, so that no frame of the machine reaches the namespace's
	// own network, and the tap for held frames is up before it gets any.
	if err := mirror(conn, t.index, t.link, 0); err != nil {
		return nil, err
	}
	if err := up(conn, t.heldIndex); err != nil {
		return nil, err
	}
	if err := t.receive(conn); err != nil {
		return nil, err
	}
	return t, up(conn, t.index)
}

// receive redirects the frames of the link to the tap, or to the one for held frames until release.
func (t *Tap) receive(conn *rtnetlink.Conn) (err error) {
	hold := uint32(0)
	if t.held != nil {
		hold = t.heldIndex
	}
	if err := mirror(conn, t.link, t.index, hold); err != nil {
		return err
	}
	// The machine's memberships of multicast groups are not known here, and some links filter by them.
	if t.allMulticast, err = setFlag(conn, t.link, unix.IFF_ALLMULTI); err != nil {
		return fmt.Errorf("receive the frames of every multicast group: %w", err)
	}
	return nil
}

// part ends the redirection to the tap.
func (t *Tap) part(conn *rtnetlink.Conn) {
	t.unmirror(conn)
	t.parted = true
}

// rejoin makes the redirection again after part.
func (t *Tap) rejoin(conn *rtnetlink.Conn) error {
	if !t.parted {
		return nil
	}
	err := t.receive(conn)
	t.parted = err != nil
	return err
}

// setFlag sets a flag of a link, and reports whether the link did not have it.
func setFlag(conn *rtnetlink.Conn, index, wanted uint32) (set bool, err error) {
	flags := uint32(0)
	err = conn.Request(unix.RTM_GETLINK, 0, linkBody(index, 0, 0), func(m syscall.NetlinkMessage) {
		if len(m.Data) >= unix.SizeofIfInfomsg {
			flags = number(m.Data[8:12])
		}
	})
	if err != nil || flags&wanted != 0 {
		return false, err
	}
	return true, flag(conn, index, wanted, wanted)
}

// flag sets or clears flags of a link.
func flag(conn *rtnetlink.Conn, index, flags, change uint32) error {
	return conn.Request(unix.RTM_NEWLINK, unix.NLM_F_ACK, linkBody(index, flags, change), nil)
}

func up(conn *rtnetlink.Conn, index uint32) error {
	if err := flag(conn, index, unix.IFF_UP, unix.IFF_UP); err != nil {
		return fmt.Errorf("bring a tap up: %w", err)
	}
	return nil
}

// close closes the descriptors. The kernel removes a tap when all copies of its descriptor are closed.
func (t *Tap) close() {
	for _, f := range []*os.File{t.File, t.held} {
		if f != nil {
			f.Close()
		}
	}
	t.held = nil
}

// findTap makes a tap in a namespace. It returns the tap's descriptor and index.
func findTap(conn *rtnetlink.Conn, namespace *os.File) (_ *os.File, index uint32, err error) {
	fd, name, err := openTap(namespace)
	if err != nil {
		return nil, 0, fmt.Errorf("make a tap: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	body := rtnetlink.AppendAttribute(linkBody(0, 0, 0), unix.IFLA_IFNAME, append([]byte(name), 0))
	err = conn.Request(unix.RTM_GETLINK, 0, body, func(m syscall.NetlinkMessage) {
		if len(m.Data) >= unix.SizeofIfInfomsg {
			index = number(m.Data[4:8])
		}
	})
	if err != nil || index == 0 {
		f.Close()
		return nil, 0, fmt.Errorf("find the tap %s: %w", name, err)
	}
	// With an address of its own the tap would send frames to the machine.
	if err := noIPv6Address(conn, index); err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("set up the tap %s: %w", name, err)
	}
	return f, index, nil
}

// release lets the frames of the link reach the tap, and sends it those that were held. It does nothing
// if it was called before.
func (t *Tap) release(conn *rtnetlink.Conn, namespace *os.File) error {
	if t.held == nil {
		return nil
	}
	// A frame that the kernel has just held is among those that are read, or lost if it is later than the last read.
	if err := unmirror(conn, t.link, holding); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("release the frames of a link: %w", err)
	}
	defer func() {
		t.held.Close()
		t.held = nil
	}()
	return Within(namespace, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // receives nothing
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
			return fmt.Errorf("send frames with their virtio_net_hdr: %w", err)
		}
		raw, err := t.held.SyscallConn()
		if err != nil {
			return err
		}
		frame := make([]byte, 1<<17)
		return raw.Control(func(held uintptr) {
			for range maxHeld {
				n, err := unix.Read(int(held), frame)
				if err != nil {
					return // there is none any more
				}
				_ = unix.Sendto(fd, frame[:n], 0, &unix.SockaddrLinklayer{Ifindex: int(t.index)}) // one that is too large is lost
			}
		})
	})
}

// maxHeld is more than the frames that the kernel keeps for a tap.
const maxHeld = 4096

// openTap makes a tap in a namespace. It returns the tap's descriptor and name.
func openTap(namespace *os.File) (fd int, name string, err error) {
	err = Within(namespace, func() error {
		const device = "/dev/net/tun"
		if fd, err = unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			return &os.PathError{Op: "open", Path: device, Err: err}
		}
		request, err := unix.NewIfreq("tap%d")
		if err == nil {
			request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
		}
		if err != nil {
			unix.Close(fd)
			return err
		}
		name = request.Name()
		return nil
	})
	return fd, name, err
}

// Within calls f on a thread in a network namespace.
func Within(namespace *os.File, f func() error) error {
	return proc.OnThread(func() error {
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
		return f()
	})
}

// unmirror removes the filters of the tap's link. The one of the tap goes with the tap.
func (t *Tap) unmirror(conn *rtnetlink.Conn) {
	if to, err := mirrored(conn, t.link); err == nil && (to == t.index || to == 0) {
		_ = unmirror(conn, t.link, priority)
		_ = unmirror(conn, t.link, holding)
		if t.allMulticast {
			_ = flag(conn, t.link, 0, unix.IFF_ALLMULTI)
		}
	}
}

// linkBody is the struct ifinfomsg of a request about a link.
func linkBody(index, flags, change uint32) []byte {
	b := make([]byte, 4, 64)
	for _, n := range []uint32{index, flags, change} {
		b = appendNumber(b, n)
	}
	return b
}

const addrGenModeNone = 1 // IN6_ADDR_GEN_MODE_NONE

// noIPv6Address lets a link have no link-local address except those that it is given. Without IPv6
// the kernel gives none.
func noIPv6Address(conn *rtnetlink.Conn, index uint32) error {
	mode := rtnetlink.AppendAttribute(nil, unix.IFLA_INET6_ADDR_GEN_MODE, []byte{addrGenModeNone})
	family := rtnetlink.AppendAttribute(nil, unix.AF_INET6|unix.NLA_F_NESTED, mode)
	err := conn.Request(unix.RTM_NEWLINK, unix.NLM_F_ACK, rtnetlink.AppendAttribute(linkBody(index, 0, 0), unix.IFLA_AF_SPEC|unix.NLA_F_NESTED, family), nil)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return nil
	}
	return err
}
