package wire

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

func null(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// duplicate stands for the receiver's copies of descriptors.
func duplicate(t testing.TB, fds []int) []int {
	t.Helper()
	var out []int
	for _, fd := range fds {
		n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

func TestACallArrivesAsItWasSent(t *testing.T) {
	f := null(t)
	for name, c := range map[string]Call{
		"stop":    {Entrypoint: abi.Stop, Force: true, Error: f},
		"app/add": {Entrypoint: abi.AppAdd, Request: f, Error: f, Ready: f, Stdio: [3]*os.File{f, f, f}},
		"app/rm":  {Entrypoint: abi.AppRm},
	} {
		t.Run(name, func(t *testing.T) {
			packet, fds := c.Encode()
			if len(packet) > MaxPacket || len(fds) > MaxFiles {
				t.Errorf("%d bytes and %d descriptors are more than a receiver has room for", len(packet), len(fds))
			}
			got, err := Decode(packet, duplicate(t, fds))
			if err != nil {
				t.Fatal(err)
			}
			defer got.Close()
			if got.Entrypoint != c.Entrypoint || got.Force != c.Force {
				t.Errorf("got %s force %v", got.Entrypoint, got.Force)
			}
			again, more := got.Encode()
			if !bytes.Equal(again, packet) || len(more) != len(fds) {
				t.Errorf("got %q with %d descriptors, want %q with %d", again, len(more), packet, len(fds))
			}
		})
	}
}

func TestADescriptorWithoutAPlaceIsClosed(t *testing.T) {
	f := null(t)
	for _, packet := range []string{"", "app/add", "app/add\x00q\x00", "app/add\x00qq\x00", "app/add\x00qx\x00", "stop\x00qe\x00hard"} {
		fds := duplicate(t, []int{int(f.Fd()), int(f.Fd())})
		if c, err := Decode([]byte(packet), fds); err == nil {
			t.Errorf("%q is taken for %+v", packet, c)
		}
		for _, fd := range fds {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
				t.Errorf("%q: descriptor %d is still open", packet, fd)
				unix.Close(fd)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("app/add\x00qer012\x00"), 6)
	f.Add([]byte("stop\x00e\x00force"), 1)
	f.Add([]byte("enter\x00qq\x00"), 2)
	f.Fuzz(func(t *testing.T, packet []byte, n int) {
		if n < 0 || n > MaxFiles {
			return
		}
		var fds []int
		for range n {
			fds = append(fds, int(null(t).Fd()))
		}
		taken := duplicate(t, fds)
		c, err := Decode(packet, taken)
		if err == nil {
			checkCall(t, c, n)
			c.Close()
		}
		for _, fd := range taken {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
				t.Errorf("%q: descriptor %d is open still: %v", packet, fd, err)
			}
		}
	})
}

// checkCall checks that a call that was decoded is encoded and decoded again to the same.
func checkCall(t *testing.T, c *Call, files int) {
	packet, fds := c.Encode()
	if len(fds) != files {
		t.Errorf("%q: %d of %d descriptors found a place", packet, len(fds), files)
	}
	again, err := Decode(packet, duplicate(t, fds))
	if err != nil {
		t.Errorf("%q: %v", packet, err)
		return
	}
	defer again.Close()
	if text, _ := again.Encode(); !bytes.Equal(text, packet) || again.Force != c.Force || again.Entrypoint != c.Entrypoint {
		t.Errorf("%q became %q", packet, text)
	}
}

func FuzzAReplyIsRefusedOrComesBack(f *testing.F) {
	f.Add([]byte("0"))
	f.Add([]byte("1 what failed"))
	f.Fuzz(func(t *testing.T, packet []byte) {
		code, text, err := DecodeReply(packet)
		if err == nil && len(packet) <= MaxPacket && !bytes.Equal(EncodeReply(code, text), packet) {
			t.Errorf("%q became code %d, %q", packet, code, text)
		}
	})
}

func TestAReplyIsAnExitCode(t *testing.T) {
	for _, code := range []int{0, 7, 255} {
		for _, want := range []string{"", "what failed", strings.Repeat("x", 2*MaxPacket)} {
			packet := EncodeReply(code, want)
			got, text, err := DecodeReply(packet)
			if err != nil || got != code || !strings.HasPrefix(want, text) || len(packet) > MaxPacket || len(want) < MaxPacket-4 && text != want {
				t.Errorf("got %d, %q, %v, want %d, %q", got, text, err, code, want)
			}
		}
	}
	for _, packet := range []string{"", "-1", "+1", "01", "256", "x", "1 "} {
		if code, _, err := DecodeReply([]byte(packet)); err == nil {
			t.Errorf("%q is taken for %d", packet, code)
		}
	}
}
