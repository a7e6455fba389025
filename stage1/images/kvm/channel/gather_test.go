package channel

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// slowConn is a connection whose writes wait for turns.
type slowConn struct {
	io.ReadWriteCloser
	turns chan error // what each write returns
	ended chan struct{}
	once  sync.Once

	mu     sync.Mutex
	writes [][]byte
}

func newSlowConn() *slowConn {
	return &slowConn{turns: make(chan error), ended: make(chan struct{})}
}

func (c *slowConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.writes = append(c.writes, bytes.Clone(b))
	c.mu.Unlock()
	select {
	case err := <-c.turns:
		return len(b), err
	case <-c.ended:
		return 0, io.ErrClosedPipe
	}
}

func (c *slowConn) Close() error {
	c.once.Do(func() { close(c.ended) })
	return nil
}

func (c *slowConn) written() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

func TestWhatIsWrittenMeanwhileIsWrittenAtOnce(t *testing.T) {
	c := newSlowConn()
	g := gather(c)
	defer g.Close()
	for _, text := range []string{"a", "b", "c"} {
		if _, err := g.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "the first write", func() bool { return len(c.written()) == 1 })
	}
	c.turns <- nil
	wait.Until(t, "the second write", func() bool { return len(c.written()) == 2 })
	if got := bytes.Join(c.written(), []byte("|")); string(got) != "a|bc" {
		t.Errorf("%q was written", got)
	}
}

func TestAConnectionThatTakesNothingIsWaitedFor(t *testing.T) {
	c := newSlowConn()
	g := gather(c)
	mustWrite := func(n int) {
		t.Helper()
		if _, err := g.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	mustWrite(1)
	wait.Until(t, "the first write", func() bool { return len(c.written()) == 1 })
	mustWrite(maxGathered)
	ended := make(chan error, 1)
	go func() {
		_, err := g.Write([]byte("x"))
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("more is taken than %d bytes (%v)", maxGathered, err)
	case <-time.After(20 * time.Millisecond):
	}
	c.turns <- nil
	if err := wait.For(t, "the write", ended); err != nil {
		t.Error(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if _, err := g.Write(nil); err == nil {
		t.Error("a closed connection takes a write")
	}
}

func TestTheErrorOfAWriteIsThatOfLaterOnes(t *testing.T) {
	c := newSlowConn()
	g := gather(c)
	defer g.Close()
	if _, err := g.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("deliberate")
	c.turns <- broken
	wait.Until(t, "the error", func() bool {
		_, err := g.Write(nil)
		return errors.Is(err, broken)
	})
}
