package serve_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// pair returns both ends of a connection, and the descriptor of the second.
func pair(t testing.TB) (a, b *serve.Conn, raw int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b = serve.NewConn(fds[0]), serve.NewConn(fds[1])
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b, fds[1]
}

func TestAMessageArrivesAsItWasSent(t *testing.T) {
	a, b, _ := pair(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	bodies := map[serve.Word][]byte{serve.Call: bytes.Repeat([]byte("0123456789abcdef"), 8<<16), serve.Ready: []byte("{}\n{}"), serve.Exit: {}}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for _, word := range []serve.Word{serve.Call, serve.Ready, serve.Exit} {
			if err := a.Send(word, bodies[word], int(null.Fd()), int(null.Fd())); err != nil {
				t.Error(err)
			}
		}
		a.HangUp()
	}()
	for _, want := range []serve.Word{serve.Call, serve.Ready, serve.Exit} {
		word, body, err := b.Receive(16 << 20)
		if err != nil || word != want || !bytes.Equal(body, bodies[want]) {
			t.Fatalf("got %s with %d bytes, %v; want %s with %d", word, len(body), err, want, len(bodies[want]))
		}
		if want != serve.Call {
			continue
		}
		files := b.Files()
		if len(files) != 2 {
			t.Errorf("%d descriptors came with the first message, want 2", len(files))
		}
		for _, f := range files {
			f.Close()
		}
	}
	if _, _, err := b.Receive(10); err != io.EOF {
		t.Errorf("after the last message: %v", err)
	}
	<-sent
}

func TestWhatIsNoMessageIsRefused(t *testing.T) {
	for _, text := range []string{"\n", "call\n", "call \n", "call -1\n", "call 01\n", "call +1\nx", "call 101\n", "call 5\nfour", "exit 1", strings.Repeat("x", 1000)} {
		a, b, raw := pair(t)
		_ = a
		if _, err := unix.Write(raw, []byte(text)); err != nil {
			t.Fatal(err)
		}
		b.HangUp()
		if word, body, err := a.Receive(100); err == nil || err == io.EOF {
			t.Errorf("%.20q is taken for %s %q (%v)", text, word, body, err)
		}
	}
}

func TestDescriptorsThatAreNotTakenAreClosed(t *testing.T) {
	a, b, _ := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := a.Send(serve.Call, nil, int(w.Fd())); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, _, err := b.Receive(0); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := r.Read(make([]byte, 1))
		ended <- err
	}()
	wait.Still(t, "reads that have ended", func() int { return len(ended) })
	b.Close()
	if err := wait.For(t, "the pipe has no writer", ended); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func FuzzAnAnswerIsRefusedOrComesBack(f *testing.F) {
	f.Add([]byte("exit 1\n5"))
	f.Add([]byte("error 3\nwhyexit 1\n1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, b, raw := pair(t)
		if len(text) > 4096 {
			return
		}
		if len(text) > 0 {
			if _, err := unix.Write(raw, text); err != nil {
				t.Fatal(err)
			}
		}
		b.HangUp()
		rest := text
		for {
			word, body, err := a.Receive(serve.MaxAnswer)
			if err != nil {
				return
			}
			c, d, _ := pair(t)
			if err := c.Send(word, body); err != nil {
				t.Fatal(err)
			}
			w, again, err := d.Receive(serve.MaxAnswer)
			if err != nil || w != word || !bytes.Equal(again, body) {
				t.Fatalf("%s %q became %s %q (%v)", word, body, w, again, err)
			}
			if len(rest) < len(body) {
				t.Fatalf("%q has a body of %d bytes", text, len(body))
			}
			rest = rest[len(body):]
		}
	})
}
