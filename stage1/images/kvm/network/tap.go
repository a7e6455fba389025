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
}

// serves reports whether the tap is that of a link. If the link has got another hardware address, it
// is not, because a NIC keeps its address.
func (t *Tap) serves(l Link) bool { return t.link == l.index && t.MAC == l.MAC }

// newTap makes a tap for a link, and redirects the frames of each to the other. The kernel gives the
// tap its name.
func newTap(conn *rtnetlink.Conn, namespace *os.File, l Link) (_ *Tap, err error) {
	fd, name, err := openTap(namespace)
	if err != nil {
		return nil, fmt.Errorf("make a tap: %w", err)
	}
	t := &Tap{File: os.NewFile(uintptr(fd), name), MAC: l.MAC, link: l.index}
	defer func() {
		if err != nil {
			t.unmirror(conn)
			t.File.Close()
		}
	}()
	body := rtnetlink.AppendAttribute(linkBody(0, 0, 0), unix.IFLA_IFNAME, append([]byte(name), 0))
	err = conn.Request(unix.RTM_GETLINK, 0, body, func(m syscall.NetlinkMessage) {
		if len(m.Data) >= unix.SizeofIfInfomsg {
			t.index = number(m.Data[4:8])
		}
	})
	if err != nil || t.index == 0 {
		return nil, fmt.Errorf("find the tap %s: %w", name, err)
	}
	// With an address of its own the tap would send frames to the machine.
	if err := noIPv6Address(conn, t.index); err != nil {
		return nil, fmt.Errorf("set up the tap %s: %w", name, err)
	}
	// The tap is redirected before it is up, so that no frame of the machine reaches the namespace's
	// own network.
	for _, pair := range [][2]uint32{{t.index, t.link}, {t.link, t.index}} {
		if err := mirror(conn, pair[0], pair[1]); err != nil {
			return nil, err
		}
	}
	if err := conn.Request(unix.RTM_NEWLINK, unix.NLM_F_ACK, linkBody(t.index, unix.IFF_UP, unix.IFF_UP), nil); err != nil {
		return nil, fmt.Errorf("bring the tap %s up: %w", name, err)
	}
	return t, nil
}

// openTap makes a tap in a namespace. It returns the tap's descriptor and name.
func openTap(namespace *os.File) (fd int, name string, err error) {
	err = within(namespace, func() error {
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

// within calls f on a thread in a network namespace.
func within(namespace *os.File, f func() error) error {
	return proc.OnThread(func() error {
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
		return f()
	})
}

// unmirror removes the filter of the tap's link. The one of the tap goes with the tap.
func (t *Tap) unmirror(conn *rtnetlink.Conn) {
	if to, err := mirrored(conn, t.link); err == nil && (to == t.index || to == 0) {
		_ = unmirror(conn, t.link)
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
