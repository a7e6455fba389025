package supervisor

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

func TestMain(m *testing.M) { os.Exit(wait.Run(m)) }

// guest is a scripted agent in the place of a machine.
type guest struct {
	t       *testing.T
	session *channel.Session
	hello   chan *channel.Stream

	mu sync.Mutex
	// answers are how calls are answered, by the entrypoint; one that is missing is answered
	// by success.
	answers map[abi.Entrypoint]func(*channel.Stream, *channel.Header)
	data    map[uint32]*channel.Stream
	// connections serves connections to an address of the machine.
	connections func(*channel.Stream, string)
	asked       []abi.Entrypoint
}

// accept serves streams until the session ends.
func (g *guest) accept() {
	for {
		s, err := g.session.Accept()
		if err != nil {
			return
		}
		go g.converse(s)
	}
}

func (g *guest) converse(s *channel.Stream) {
	word, body, err := channel.Receive(bufio.NewReader(s), channel.MaxCall)
	if err != nil {
		return
	}
	switch word {
	case channel.Hello:
		g.hello <- s
	case channel.Data:
		g.mu.Lock()
		g.data[s.Number()] = s
		g.mu.Unlock()
	case channel.Connect:
		g.mu.Lock()
		serve := g.connections
		g.mu.Unlock()
		serve(s, string(body))
	case channel.Call:
		var h channel.Header
		if err := json.Unmarshal(body, &h); err != nil {
			return
		}
		e := abi.Run
		if h.Call != nil {
			e = h.Call.Entrypoint
		}
		if h.Network != nil {
			e = abi.Network
		}
		if h.Size != nil {
			e = sizeCall
		}
		if h.Clock != nil {
			e = clockCall
		}
		g.mu.Lock()
		g.asked = append(g.asked, e)
		answer := g.answers[e]
		g.mu.Unlock()
		if answer == nil {
			answer = succeed
		}
		answer(s, &h)
	}
}

// sizeCall and clockCall stand for a channel.Size and a channel.Clock in the place of an entrypoint.
const (
	sizeCall  abi.Entrypoint = "size"
	clockCall abi.Entrypoint = "clock"
)

func (g *guest) on(e abi.Entrypoint, answer func(*channel.Stream, *channel.Header)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answers[e] = answer
}

func (g *guest) wasAsked(e abi.Entrypoint) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.asked {
		if a == e || a == "" && e == abi.AppSignal {
			return true
		}
	}
	return false
}

// stream returns a data stream by the number in a call.
func (g *guest) stream(n uint32) *channel.Stream {
	var s *channel.Stream
	wait.Until(g.t, "the data stream has come", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		s = g.data[n]
		return s != nil
	})
	return s
}

func say(s *channel.Stream, words ...string) {
	for i := 0; i+1 < len(words); i += 2 {
		_ = channel.Send(s, channel.Word(words[i]), []byte(words[i+1]))
	}
	_ = s.Close()
}

func succeed(s *channel.Stream, h *channel.Header) {
	if h.Run != nil || h.Call != nil && (h.Call.Entrypoint == abi.AppAdd || h.Call.Entrypoint == abi.Enter) {
		_ = channel.Send(s, channel.Ready, []byte(`{"pid":7}`))
	}
	say(s, "exit", "0")
}

// world is a supervisor and its guest.
type world struct {
	t       *testing.T
	s       *Supervisor
	guest   *guest
	told    *channel.Stream // the stream of notices
	notices *bufio.Reader
	rootfs  string
}

// connect returns a supervisor's configuration, and its guest.
func connect(t *testing.T) (Config, *guest, *os.File) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.MkdirAll(abi.StatusDir, 0o755); err != nil {
		t.Fatal(err)
	}
	share, err := NewShare()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(share.Close)
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
	}
	host, err := channel.Host(ends[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	inside, err := channel.Guest(ends[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inside.Close() })
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	network, err := NewNetwork("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(network.Close)
	children := proc.NewChildren()
	t.Cleanup(func() { _ = children.Close(context.Background()) })
	g := &guest{t: t, session: inside, hello: make(chan *channel.Stream, 1), answers: map[abi.Entrypoint]func(*channel.Stream, *channel.Header){}, data: map[uint32]*channel.Stream{}}
	go g.accept()
	return Config{
		Session: host, Children: children, Notices: w, Share: share, Log: t.Output(),
		Request: &abi.Request{Version: abi.Version, Pod: "p", NoticeWords: true},
		Network: network,
	}, g, r
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, nil)
}

// newWorldOf is newWorld for a pod of the Sandbox service.
func newWorldOf(t *testing.T, sandbox *Sandbox) *world {
	t.Helper()
	c, g, notices := connect(t)
	c.Sandbox = sandbox
	w := &world{t: t, guest: g, notices: bufio.NewReader(notices), rootfs: t.TempDir()}
	greeted := make(chan *channel.Stream, 1)
	go func() {
		s := <-g.hello
		_ = channel.Send(s, channel.Version, []byte(channel.ProtocolVersion))
		greeted <- s
	}()
	var err error
	if w.s, err = New(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.told = wait.For(t, "the greeting", greeted)
	t.Cleanup(func() {
		_ = w.s.Session.Close()
		<-w.s.Ended()
		w.s.EndAll()
	})
	return w
}

// inShare calls f on a thread whose root is that of the share.
func (w *world) inShare(f func()) {
	w.t.Helper()
	if err := w.s.Share.within(func(*os.File) error { f(); return nil }); err != nil {
		w.t.Fatal(err)
	}
}

// spec is what an app of these tests asks for.
func spec() string {
	return `{"ociVersion":"1.2.0","process":{"args":["x"],"cwd":"/"},"root":{"path":"r"},"linux":{"namespaces":[` +
		`{"type":"pid"},{"type":"ipc"},{"type":"uts"},{"type":"mount"},{"type":"network"}]}}`
}

// call makes a call of stage 0. stdio may be nil.
func (w *world) call(ctx context.Context, r *abi.Request, stdio [3]*os.File) error {
	r.Version = abi.Version
	if r.Entrypoint == abi.AppAdd && r.Spec == nil {
		r.Spec = abi.RawJSON(spec())
	}
	if r.Entrypoint == abi.Enter && r.Process == nil {
		r.Process = abi.RawJSON(`{"args":["x"],"cwd":"/"}`)
	}
	r.Rootfs, r.Bundle = w.rootfs, w.rootfs
	return w.s.dispatch(ctx, &serve.Asked{Request: r, Stdio: stdio})
}

// null returns descriptors of /dev/null.
func null(t *testing.T) (files [3]*os.File) {
	t.Helper()
	for i := range files {
		f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		files[i] = f
	}
	return files
}

// addWith adds the app "a" with these files, and returns the numbers of its streams.
func (w *world) addWith(files [3]*os.File) []uint32 {
	w.t.Helper()
	numbers := make(chan []uint32, 1)
	w.guest.on(abi.AppAdd, func(s *channel.Stream, h *channel.Header) {
		numbers <- h.Streams
		succeed(s, h)
	})
	if err := w.call(w.t.Context(), &abi.Request{Entrypoint: abi.AppAdd, App: "a"}, files); err != nil {
		w.t.Fatal(err)
	}
	return <-numbers
}

// add adds and starts an app.
func (w *world) add(app string) *process {
	w.t.Helper()
	for _, e := range []abi.Entrypoint{abi.AppAdd, abi.AppStart} {
		if err := w.call(w.t.Context(), &abi.Request{Entrypoint: e, App: app}, null(w.t)); err != nil {
			w.t.Fatal(err)
		}
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.s.apps[app].main
}

// tell sends a notice of the guest.
func (w *world) tell(lines ...string) {
	for _, line := range lines {
		if err := channel.Send(w.told, channel.Notice, []byte(line)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// next returns the next notice for stage 0, without its time.
func (w *world) next() string {
	w.t.Helper()
	line := make(chan string, 1)
	go func() {
		l, _ := w.notices.ReadString('\n')
		line <- l
	}()
	text, _, _ := strings.Cut(strings.TrimSpace(wait.For(w.t, "a notice", line)), " time=")
	return text
}
