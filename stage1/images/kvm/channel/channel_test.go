package channel_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
)

func TestMain(m *testing.M) { os.Exit(wait.Run(m)) }

// connection returns both ends of what a machine's port and its socket are.
func connection(t testing.TB) (host, guest net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
		t.Cleanup(func() { ends[i].Close() })
	}
	return ends[0], ends[1]
}

// sessions returns both ends of a session.
func sessions(t *testing.T) (host, guest *channel.Session) {
	t.Helper()
	h, g := connection(t)
	host, err := channel.Host(h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	if guest, err = channel.Guest(g); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guest.Close() })
	return host, guest
}

func TestHostAndMachineAgreeOnTheNameOfThePort(t *testing.T) {
	if channel.PortName != machine.ChannelName {
		t.Errorf("the agent opens %s, the machine has %s", channel.PortName, machine.ChannelName)
	}
}

func TestACallAndItsAnswerAndAStreamArriveAsTheyWereSent(t *testing.T) {
	host, guest := sessions(t)
	input := bytes.Repeat([]byte("0123456789abcdef"), 4<<16) // more than a window
	answered := make(chan error, 1)
	go func() {
		answered <- func() error {
			s, err := guest.Accept()
			if err != nil {
				return err
			}
			defer s.Close()
			r := bufio.NewReader(s)
			if word, body, err := channel.Receive(r, channel.MaxCall); err != nil || word != channel.Call || string(body) != "{}" {
				return errors.Join(errors.New("not the call"), err)
			}
			if err := channel.Send(s, channel.Exit, []byte("0")); err != nil {
				return err
			}
			_, err = s.Write(input)
			return err
		}()
	}()
	s, err := host.Open(t.Context(), channel.Call, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := bufio.NewReader(s)
	if word, body, err := channel.Receive(r, channel.MaxAnswer); err != nil || word != channel.Exit || string(body) != "0" {
		t.Fatalf("got %s %q, %v", word, body, err)
	}
	output, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(output, input) {
		t.Errorf("%d bytes arrive, %v; sent were %d", len(output), err, len(input))
	}
	if err := wait.For(t, "the agent", answered); err != nil {
		t.Error(err)
	}
}

func TestWhatNoAgentSendsEndsTheConnection(t *testing.T) {
	frame := func(kind byte, flags uint16, id, length uint32) []byte {
		f := make([]byte, 12)
		f[1] = kind
		binary.BigEndian.PutUint16(f[2:], flags)
		binary.BigEndian.PutUint32(f[4:], id)
		binary.BigEndian.PutUint32(f[8:], length)
		return f
	}
	for name, sent := range map[string][]byte{
		"a stream of the machine's":            frame(1, 1, 2, 0),
		"a stream with a number of the host's": frame(1, 1, 1, 0),
		"a stream that begins with data":       frame(0, 1, 2, 4),
		"data of a stream of the machine's":    frame(0, 0, 2, 4),
		"a ping":                               frame(2, 1, 0, 7),
		"the end of all streams":               frame(3, 0, 0, 0),
		"another type":                         frame(4, 0, 0, 0),
		"another version":                      append([]byte{1}, frame(1, 0, 1, 0)[1:]...),
		"text":                                 []byte("agent: hello world, how are you?"),
	} {
		h, g := connection(t)
		host, err := channel.Host(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Write(sent); err != nil {
			t.Fatal(err)
		}
		wait.For(t, "the end after "+name, host.Done())
		host.Close()
	}
}

func TestAMillionStreamsOfAMachineAreNoneOfTheHosts(t *testing.T) {
	h, g := connection(t)
	host, err := channel.Host(h)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		f := make([]byte, 12)
		f[1], f[3] = 1, 1
		for id := uint32(2); id < 2_000_000; id += 2 {
			binary.BigEndian.PutUint32(f[4:], id)
			if _, err := g.Write(f); err != nil {
				return
			}
		}
	}()
	wait.For(t, "the end of the connection", host.Done())
	wait.For(t, "the machine", sent)
}

func TestACallThatNoMachineTakesEndsWithItsContext(t *testing.T) {
	h, _ := connection(t)
	host, err := channel.Host(h)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the caller has gone")
	ended := make(chan error, 1)
	body := make([]byte, 8<<20) // more than window and socket take
	go func() {
		_, err := host.Open(ctx, channel.Call, body)
		ended <- err
	}()
	wait.Still(t, "calls that have ended", func() int { return len(ended) })
	cancel(gone)
	if err := wait.For(t, "the call", ended); !errors.Is(err, gone) {
		t.Error(err)
	}
}

func TestWhatIsNoMessageIsRefused(t *testing.T) {
	for _, text := range []string{
		"\n", "call\n", "call \n", "call -1\n", "call 01\n", "call +1\nx", "call 101\n" + strings.Repeat("x", 101), "call 5\nfour", "exit 1",
		strings.Repeat("x", 10000), "call 9999999999999999999999\n",
	} {
		word, body, err := channel.Receive(bufio.NewReader(strings.NewReader(text)), 100)
		if err == nil || err == io.EOF {
			t.Errorf("%.20q is taken for %s %q (%v)", text, word, body, err)
		}
	}
	if _, _, err := channel.Receive(bufio.NewReader(strings.NewReader("")), 100); err != io.EOF {
		t.Errorf("nothing: %v", err)
	}
}

func TestAnswersAreParsedStrictly(t *testing.T) {
	for _, text := range []string{"", "-1", "256", "01", "+1", "1 ", "x"} {
		if code, err := channel.ParseExit([]byte(text)); !errors.Is(err, channel.ErrMessage) {
			t.Errorf("%q is exit code %d, %v", text, code, err)
		}
	}
	for _, text := range []string{"", "{}", `{"pid":0}`, `{"pid":-1}`, `{"pid":4194305}`, `{"pid":"1"}`, `{"pid":1}{`} {
		if pid, err := channel.ParseReady([]byte(text)); !errors.Is(err, channel.ErrMessage) {
			t.Errorf("%q has pid %d, %v", text, pid, err)
		}
	}
	for _, text := range []string{"", "[]", `{"cpu":-1}`, `{"cpu":{"usage":-1}}`, `{"processes":[{"pid":0}]}`} {
		if s, err := channel.ParseStats([]byte(text)); !errors.Is(err, channel.ErrMessage) {
			t.Errorf("%q are statistics %s, %v", text, s, err)
		}
	}
	s, err := channel.ParseStats([]byte(`{"cpu":{"usage":7},"secret":"x","processes":[{"pid":1,"exec":"e"}]}`))
	if want := `{"cpu":{"usage":7},"processes":[{"pid":1,"exec":"e"}]}`; err != nil || string(s) != want {
		t.Errorf("statistics are %s, %v; want %s", s, err, want)
	}
}

func FuzzAMessageIsRefusedOrComesBack(f *testing.F) {
	f.Add([]byte("exit 1\n5"))
	f.Add([]byte("error 3\nwhyexit 1\n1"))
	f.Add([]byte("ready 9\n{\"pid\":7}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := bufio.NewReader(bytes.NewReader(text))
		for {
			word, body, err := channel.Receive(r, channel.MaxAnswer)
			if err != nil {
				return
			}
			var again bytes.Buffer
			if err := channel.Send(&again, word, body); err != nil {
				t.Fatal(err)
			}
			w, b, err := channel.Receive(bufio.NewReader(&again), channel.MaxAnswer)
			if err != nil || w != word || !bytes.Equal(b, body) {
				t.Fatalf("%s %q became %s %q (%v)", word, body, w, b, err)
			}
		}
	})
}

func FuzzAnAnswerIsRefusedOrBounded(f *testing.F) {
	f.Add([]byte("255"))
	f.Add([]byte(`{"pid":4194304}`))
	f.Add([]byte(`{"cpu":{"usage":1},"memory":{"limit":2},"io":[{"major":1,"minor":2}],"processes":[{"pid":1,"exec":"e"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if code, err := channel.ParseExit(text); err == nil && (code < 0 || code > 255) {
			t.Errorf("code %d", code)
		}
		if pid, err := channel.ParseReady(text); err == nil && (pid < 1 || pid > channel.MaxPID) {
			t.Errorf("pid %d", pid)
		}
		if s, err := channel.ParseStats(text); err == nil && len(s) > abi.MaxAppStats {
			t.Errorf("%d bytes", len(s))
		}
	})
}

// FuzzTheFramesOfAMachine sends the host what a machine may send.
func FuzzTheFramesOfAMachine(f *testing.F) {
	f.Add([]byte{0, 1, 0, 2, 0, 0, 0, 1, 0, 4, 0, 0})
	f.Add([]byte{0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 8, 'e', 'x', 'i', 't', ' ', '1', '\n', '0'})
	f.Add([]byte{0, 1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4096 {
			return
		}
		h, g := connection(t)
		host, err := channel.Host(h)
		if err != nil {
			t.Fatal(err)
		}
		defer host.Close()
		s, err := host.Open(t.Context(), channel.Call, nil)
		if err != nil {
			return
		}
		_, _ = g.Write(text)
		g.Close()
		r := bufio.NewReader(s)
		for {
			if _, _, err := channel.Receive(r, channel.MaxAnswer); err != nil {
				break
			}
		}
		_ = s.Close()
	})
}
