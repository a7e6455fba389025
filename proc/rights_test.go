package proc_test

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func TestDescriptorsComeWithTheirMessage(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	for _, files := range [][]int{{fd, fd}, {fd, fd, fd}, {fd, fd}, nil} {
		if err := proc.Send(pair[0], []byte("words"), files...); err != nil {
			t.Fatal(err)
		}
	}
	unix.Close(pair[0])
	buf := make([]byte, 16)
	n, fds, err := proc.Receive(pair[1], buf, 2)
	if err != nil || string(buf[:n]) != "words" || len(fds) != 2 {
		t.Fatalf("%q with %v, %v", buf[:n], fds, err)
	}
	for _, fd := range fds {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("flags %#x, %v", flags, err)
		}
	}
	proc.CloseAll(fds)
	if _, fds, err := proc.Receive(pair[1], buf, 2); !errors.Is(err, unix.EMSGSIZE) || fds != nil {
		t.Errorf("too many: %v, %v", fds, err)
	}
	if _, fds, err := proc.Receive(pair[1], buf, 1); !errors.Is(err, unix.EMSGSIZE) || fds != nil {
		t.Errorf("one too many: %v, %v", fds, err)
	}
	if n, fds, err := proc.Receive(pair[1], buf, 2); err != nil || n != 5 || fds != nil {
		t.Errorf("none: %d, %v, %v", n, fds, err)
	}
	if _, _, err := proc.Receive(pair[1], buf, 2); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
}
