package rtnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Conn is a socket of rtnetlink(7). It belongs to the network namespace in which it was
// made, and keeps that namespace alive. It is for one goroutine at a time.
type Conn struct {
	fd  int
	seq uint32
}

// ErrChanged is the error of Dump if the kernel's list has changed while it was read, so that
// entries may be missing.
var ErrChanged = errors.New("the list has changed while it was read")

// Dial returns a connection to this thread's network namespace.
func Dial() (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	// From now on the kernel refuses messages that other processes send to this socket. Such a
	// message could pass for an answer, and many of them would leave no room for answers.
	if err := unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("connect a netlink socket: %w", err)
	}
	// With both options a refusal has the kernel's text. A kernel without the options sends
	// only an error number.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	return &Conn{fd: fd}, nil
}

// DialIn returns a connection to another network namespace.
func DialIn(namespace *os.File) (c *Conn, err error) {
	err = proc.OnThread(func() (err error) {
		if err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
		c, err = Dial()
		return err
	})
	return c, err
}

// Close closes the connection.
func (c *Conn) Close() { unix.Close(c.fd) }

// Request sends a request and passes every message of the answer to the function each, which may
// be nil.
func (c *Conn) Request(kind, flags uint16, body []byte, each func(syscall.NetlinkMessage)) error {
	_, err := c.request(kind, flags, body, func(m syscall.NetlinkMessage) error {
		if each != nil {
			each(m)
		}
		return nil
	})
	return err
}

// Dump asks for a list and passes every message of the answer to the function each. If each
// returns an error, Dump returns it at once; the connection can then only be closed. Dump returns
// ErrChanged if the messages may not be the whole list.
func (c *Conn) Dump(kind uint16, body []byte, each func(syscall.NetlinkMessage) error) error {
	changed, err := c.request(kind, unix.NLM_F_DUMP, body, each)
	if err == nil && changed {
		return ErrChanged
	}
	return err
}

func (c *Conn) request(kind, flags uint16, body []byte, each func(syscall.NetlinkMessage) error) (changed bool, err error) {
	c.seq++
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags|unix.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, c.seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	if _, err := unix.Write(c.fd, append(b, body...)); err != nil {
		return false, err
	}
	buf := make([]byte, 64<<10) // a packet of the kernel has at most 32 KiB
	for {
		n, _, err := unix.Recvfrom(c.fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, err
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return false, err
		}
		for _, m := range messages {
			if m.Header.Seq != c.seq {
				continue
			}
			changed = changed || m.Header.Flags&unix.NLM_F_DUMP_INTR != 0
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				return changed, nil
			case unix.NLMSG_ERROR:
				return changed, refusal(m.Data)
			}
			if err := each(m); err != nil {
				return changed, err
			}
			if m.Header.Flags&unix.NLM_F_MULTI == 0 && flags&unix.NLM_F_ACK == 0 {
				return changed, nil
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
	for kind, value := range Attributes(data[min(len(data), 4+unix.SizeofNlMsghdr):]) {
		if kind == text && len(value) > 1 {
			return fmt.Errorf("%w: %s", number, value[:len(value)-1])
		}
	}
	return number
}
