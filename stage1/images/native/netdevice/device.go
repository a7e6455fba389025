package netdevice

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/rtnetlink"
)

// conn finds, moves and sets up the devices of a network namespace.
type conn struct{ *rtnetlink.Conn }

// device is a network device in its original namespace.
type device struct {
	index     uint32
	up        bool
	addresses [][]byte // for each address the body of the request that adds it, with index 0
}

// linkHeader is a struct ifinfomsg.
func linkHeader(index, flags, change uint32) []byte {
	b := make([]byte, 4, 64)
	b = binary.NativeEndian.AppendUint32(b, index)
	b = binary.NativeEndian.AppendUint32(b, flags)
	return binary.NativeEndian.AppendUint32(b, change)
}

func nameAttribute(b []byte, name string) []byte {
	return rtnetlink.AppendAttribute(b, unix.IFLA_IFNAME, append([]byte(name), 0))
}

// find looks a device up by its name. The error unwraps to ENODEV if there is none.
func (c conn) find(name string) (device, error) {
	return c.link(nameAttribute(linkHeader(0, 0, 0), name))
}

// has reports whether the namespace has a device of an index.
func (c conn) has(index uint32) bool {
	_, err := c.link(linkHeader(index, 0, 0))
	return !errors.Is(err, unix.ENODEV)
}

func (c conn) link(body []byte) (d device, err error) {
	err = c.Request(unix.RTM_GETLINK, 0, body, func(m syscall.NetlinkMessage) {
		if m.Header.Type == unix.RTM_NEWLINK && len(m.Data) >= unix.SizeofIfInfomsg {
			d.index = binary.NativeEndian.Uint32(m.Data[4:])
			d.up = binary.NativeEndian.Uint32(m.Data[8:])&unix.IFF_UP != 0
		}
	})
	if err == nil && d.index == 0 {
		err = unix.ENODEV
	}
	return d, err
}

// keep lists the addresses that a device keeps when it is moved.
func (c conn) keep(d *device) error {
	return c.Request(unix.RTM_GETADDR, unix.NLM_F_DUMP, make([]byte, unix.SizeofIfAddrmsg), func(m syscall.NetlinkMessage) {
		if m.Header.Type == unix.RTM_NEWADDR && len(m.Data) >= unix.SizeofIfAddrmsg && binary.NativeEndian.Uint32(m.Data[4:]) == d.index {
			if a := kept(m.Data); a != nil {
				d.addresses = append(d.addresses, a)
			}
		}
	})
}

// kept returns the body of the request that adds an address, or nil if the address is not
// permanent and global. The body has no label, because the label is the device's old name.
func kept(found []byte) []byte {
	flags := uint32(found[2])
	header, rest := slices.Clone(found[:unix.SizeofIfAddrmsg]), []byte(nil)
	for kind, value := range rtnetlink.Attributes(found[unix.SizeofIfAddrmsg:]) {
		switch kind {
		case unix.IFA_FLAGS:
			if len(value) == 4 {
				flags = binary.NativeEndian.Uint32(value)
			}
		case unix.IFA_ADDRESS, unix.IFA_LOCAL, unix.IFA_BROADCAST, unix.IFA_RT_PRIORITY:
			rest = rtnetlink.AppendAttribute(rest, kind, value)
		}
	}
	if flags&unix.IFA_F_PERMANENT == 0 || header[3] != unix.RT_SCOPE_UNIVERSE {
		return nil
	}
	header[2] = 0
	clear(header[4:])
	return rtnetlink.AppendNumber(append(header, rest...), unix.IFA_FLAGS, flags&unix.IFA_F_NOPREFIXROUTE)
}

// move moves a device to another namespace and gives it a name. from is the device's index
// in this namespace. The connection there belongs to the other namespace, and file is the
// number of a descriptor of that namespace. move returns the device's index in it: the
// index wanted or, if another device has that, the next free one.
func (c conn) move(from, wanted uint32, there conn, file int, name string) (index uint32, err error) {
	index = wanted
	for range 8 { // other processes may take the index meanwhile
		body := nameAttribute(linkHeader(from, 0, 0), name)
		body = rtnetlink.AppendNumber(body, unix.IFLA_NET_NS_FD, uint32(file))
		body = rtnetlink.AppendNumber(body, unix.IFLA_NEW_IFINDEX, index)
		err = c.Request(unix.RTM_NEWLINK, unix.NLM_F_ACK, body, nil)
		if !errors.Is(err, unix.EBUSY) {
			return index, err
		}
		highest, failed := there.highest()
		if failed != nil {
			return index, failed
		}
		index = highest + 1
	}
	return index, err
}

// highest returns the highest index of the devices.
func (c conn) highest() (index uint32, err error) {
	err = c.Request(unix.RTM_GETLINK, unix.NLM_F_DUMP, linkHeader(0, 0, 0), func(m syscall.NetlinkMessage) {
		if len(m.Data) >= unix.SizeofIfInfomsg {
			index = max(index, binary.NativeEndian.Uint32(m.Data[4:]))
		}
	})
	return index, err
}

// settle adds a moved device's addresses and restores its state.
func (c conn) settle(index uint32, d device, up bool) error {
	for _, a := range d.addresses {
		body := slices.Clone(a)
		binary.NativeEndian.PutUint32(body[4:], index)
		if err := c.Request(unix.RTM_NEWADDR, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, body, nil); err != nil {
			return fmt.Errorf("add its address %s: %w", text(a), err)
		}
	}
	if !up {
		return nil
	}
	if err := c.Request(unix.RTM_NEWLINK, unix.NLM_F_ACK, linkHeader(index, unix.IFF_UP, unix.IFF_UP), nil); err != nil {
		return fmt.Errorf("bring it up: %w", err)
	}
	return nil
}
