package rtnetlink

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func TestMain(m *testing.M) { os.Exit(wait.Run(m)) }

// inANamespace calls f on a thread in a new network namespace, which has one link, lo.
func inANamespace(t *testing.T, f func() error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes a network namespace")
	}
	if err := proc.OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	}); err != nil {
		t.Fatal(err)
	}
}

// links lists the names of the links.
func links(c *Conn) (names []string, err error) {
	err = c.Dump(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg), func(m syscall.NetlinkMessage) error {
		for kind, value := range Attributes(m.Data[unix.SizeofIfInfomsg:]) {
			if kind == unix.IFLA_IFNAME {
				names = append(names, unix.ByteSliceToString(value))
			}
		}
		return nil
	})
	return names, err
}

// A process of a container that shares the pod's network namespace, and has CAP_NET_ADMIN there,
// may send messages to any netlink socket of the namespace.
func TestAnotherProcessCannotAnswerForTheKernel(t *testing.T) {
	inANamespace(t, func() error {
		c, err := Dial()
		if err != nil {
			return err
		}
		defer c.Close()
		address, err := unix.Getsockname(c.fd)
		if err != nil {
			return err
		}
		attacker, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer unix.Close(attacker)
		end := make([]byte, unix.SizeofNlMsghdr+4) // the end of a list, as an answer to the first request
		binary.NativeEndian.PutUint32(end, uint32(len(end)))
		binary.NativeEndian.PutUint16(end[4:], unix.NLMSG_DONE)
		binary.NativeEndian.PutUint32(end[8:], 1)
		if err := unix.Sendto(attacker, end, 0, address); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("the attacker's message: %v, not refused", err)
		}
		if names, err := links(c); err != nil || len(names) == 0 || names[0] != "lo" {
			t.Errorf("the links are %q, %v", names, err)
		}
		return nil
	})
}

func TestADumpEndsWithTheErrorOfItsFunction(t *testing.T) {
	inANamespace(t, func() error {
		c, err := Dial()
		if err != nil {
			return err
		}
		defer c.Close()
		enough := errors.New("enough")
		if err := c.Dump(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg), func(syscall.NetlinkMessage) error { return enough }); err != enough {
			t.Errorf("%v, not the function's error", err)
		}
		return nil
	})
}

func TestARefusalHasTheKernelsNumber(t *testing.T) {
	inANamespace(t, func() error {
		c, err := Dial()
		if err != nil {
			return err
		}
		defer c.Close()
		body := AppendAttribute(make([]byte, unix.SizeofIfInfomsg), unix.IFLA_IFNAME, []byte("absent\x00"))
		if err := c.Request(unix.RTM_GETLINK, 0, body, nil); !errors.Is(err, unix.ENODEV) {
			t.Errorf("%v, not ENODEV", err)
		}
		return nil
	})
}

// The kernel sends a long list in parts, and says in a later part that the list has changed.
func TestADumpThatMayNotBeWholeFails(t *testing.T) {
	inANamespace(t, func() error {
		c, err := Dial()
		if err != nil {
			return err
		}
		defer c.Close()
		other, err := Dial()
		if err != nil {
			return err
		}
		defer other.Close()
		add := func(n uint16) error {
			body := []byte{unix.AF_INET, 32, 0, 0, 1, 0, 0, 0} // of the link 1, lo
			body = AppendAttribute(body, unix.IFA_LOCAL, []byte{10, 1, byte(n >> 8), byte(n)})
			return other.Request(unix.RTM_NEWADDR, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, body, nil)
		}
		for n := range uint16(3000) {
			if err := add(n); err != nil {
				return err
			}
		}
		first := true
		err = c.Dump(unix.RTM_GETADDR, make([]byte, unix.SizeofIfAddrmsg), func(syscall.NetlinkMessage) error {
			if !first {
				return nil
			}
			first = false
			return add(3000)
		})
		if !errors.Is(err, ErrChanged) {
			t.Errorf("%v, not ErrChanged", err)
		}
		return nil
	})
}
