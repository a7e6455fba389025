package netdevice

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// conn is a socket of rtnetlink(7). It belongs to the network namespace in which it was
// made, and keeps that namespace alive.
type conn struct {
	fd  int
	seq uint32
}

// dial returns a socket in this thread's network namespace.
func dial() (*conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	// With both options a refusal has the kernel's text. A kernel without the options sends
	// only an error number.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	return &conn{fd: fd}, nil
}

// dialIn returns a socket in another network namespace.
func dialIn(namespace *os.File) (c *conn, err error) {
	err = proc.OnThread(func() (err error) {
		if err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
		c, err = dial()
		return err
	})
	return c, err
}

func (c *conn) close() { unix.Close(c.fd) }

// request sends a request and passes every message of the answer to the function each.
func (c *conn) request(kind, flags uint16, body []byte, each func(syscall.NetlinkMessage)) error {
	c.seq++
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags|unix.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, c.seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	if err := unix.Sendto(c.fd, append(b, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 64<<10) // a packet of the kernel has at most 32 KiB
	for {
		n, _, err := unix.Recvfrom(c.fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return err
		}
		for _, m := range messages {
			if m.Header.Seq != c.seq {
				continue
			}
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				return nil
			case unix.NLMSG_ERROR:
				return refusal(m.Data)
			}
			if each != nil {
				each(m)
			}
			if m.Header.Flags&unix.NLM_F_MULTI == 0 && flags&unix.NLM_F_ACK == 0 {
				return nil
			}
		}
	}
}

// refusal reads an answer that has an error number, which is 0 for success, and may have a
// text.
func refusal(data []byte) error {
	if len(data) < 4 {
		return errors.New("the kernel's answer is not whole")
	}
	number := unix.Errno(-int32(binary.NativeEndian.Uint32(data)))
	if number == 0 {
		return nil
	}
	const text = 1 // NLMSGERR_ATTR_MSG, after the header of the request
	for kind, value := range attributes(data[min(len(data), 4+unix.SizeofNlMsghdr):]) {
		if kind == text && len(value) > 1 {
			return fmt.Errorf("%w: %s", number, value[:len(value)-1])
		}
	}
	return number
}

// attributes iterates over the attributes of a message. It yields the kind and the value of
// each.
func attributes(b []byte) func(yield func(kind uint16, value []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			length := int(binary.NativeEndian.Uint16(b))
			if length < unix.SizeofRtAttr || length > len(b) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofRtAttr:length]) {
				return
			}
			b = b[min(aligned(length), len(b)):]
		}
	}
}

// appendAttribute appends an attribute, aligned.
func appendAttribute(b []byte, kind uint16, value []byte) []byte {
	length := unix.SizeofRtAttr + len(value)
	b = binary.NativeEndian.AppendUint16(b, uint16(length))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, aligned(length)-length)...)
}

func appendNumber(b []byte, kind uint16, value uint32) []byte {
	return appendAttribute(b, kind, binary.NativeEndian.AppendUint32(nil, value))
}

func aligned(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }
