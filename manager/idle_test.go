package manager

import (
	"context"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
)

// noConn is a connection that nothing is done with.
type noConn struct{ net.Conn }

func (noConn) Close() error { return nil }

// requirements.md#N5
func TestServerEndsIfItsDaemonNeverComesBackForIt(t *testing.T) {
	call := func(c *calls, method string) { c.begin(method)() }
	open := func(n *conns) net.Conn { return n.add(noConn{}) }
	for name, c := range map[string]struct {
		happens func(*conns, *calls)
		unused  bool
	}{
		"nobody connected":               {func(*conns, *calls) {}, true},
		"somebody connected and went":    {func(n *conns, _ *calls) { open(n).Close() }, true},
		"somebody is connected":          {func(n *conns, _ *calls) { open(n) }, false},
		"somebody asked and went":        {func(n *conns, c *calls) { x := open(n); call(c, "/containerd.task.v3.Task/Connect"); x.Close() }, true},
		"a container was created":        {func(n *conns, c *calls) { x := open(n); call(c, "/containerd.task.v2.Task/Create"); x.Close() }, false},
		"a sandbox was created":          {func(n *conns, c *calls) { x := open(n); call(c, "/x.Sandbox/CreateSandbox"); x.Close() }, false},
		"a container was tried to start": {func(n *conns, c *calls) { x := open(n); c.begin("/containerd.task.v2.Task/Create"); x.Close() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, calls := newConns(), newCalls()
				o := newUnusedWatch(n, calls)
				defer o.stop()
				time.Sleep(unusedLimit / 2)
				c.happens(n, calls)
				o.update()
				time.Sleep(unusedLimit + time.Second)
				select {
				case <-o.expired():
					if unused := o.update(); unused != c.unused {
						t.Errorf("unused: %v", unused)
					}
				default:
					if c.unused {
						t.Error("it still waits")
					}
				}
			})
		})
	}
}

// requirements.md#N5
func TestTheTimeOfAnUnusedServerStartsAnewWhenTheLastClientGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newConns()
		o := newUnusedWatch(n, newCalls())
		defer o.stop()
		x := n.add(noConn{})
		o.update()
		time.Sleep(3 * unusedLimit)
		x.Close()
		o.update()
		start := time.Now()
		<-o.expired()
		if waited := time.Since(start); waited != unusedLimit {
			t.Errorf("waited %v", waited)
		}
	})
}

// requirements.md#N5
func TestDrainWaitsForCallsButNotForThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCalls()
		c.begin("/containerd.task.v3.Task/Wait")
		c.drain(t.Context())
		done := c.begin("/containerd.task.v3.Task/Delete")
		start := time.Now()
		time.AfterFunc(time.Second, done)
		c.drain(t.Context())
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("waited %v for a call that took a second", waited)
		}
		c.begin("/containerd.task.v3.Task/Create")
		ctx, cancel := context.WithTimeout(t.Context(), closeBudget)
		defer cancel()
		c.drain(ctx)
		if ctx.Err() == nil {
			t.Error("a call that does not end was not waited for")
		}
	})
}

// requirements.md#B34
func TestOnlyTheSameUserAndRootAreServed(t *testing.T) {
	c := newConns()
	self := uint32(os.Geteuid())
	for uid, ok := range map[uint32]bool{self: true, 0: true, 65534: self == 65534, 1000: self == 1000} {
		if err := c.credentials(&unix.Ucred{Uid: uid, Gid: 7}); (err == nil) != ok {
			t.Errorf("uid %d: %v", uid, err)
		}
	}
}

// requirements.md#B32
func TestLockIsHeldByOneAndLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	held, err := early.LockGroup(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := early.LockGroup(ctx, path); err == nil {
		t.Fatal("the lock was had twice")
	}
	held.Release()
	gone := func() bool { return !exists(path + ".lock") }
	wait.Until(t, "the waiter that gave up gives the lock back", gone)
	last, err := early.LockGroup(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	last.Release()
	wait.Until(t, "a lock that nobody has leaves no file", gone)
}

// requirements.md#B33
func TestOnlySocketsAreRemovedAsStale(t *testing.T) {
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "file"), filepath.Join(dir, "socket")
	write(t, file, []byte("precious"))
	l, err := early.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, socket, filepath.Join(dir, "nothing")} {
		if err := early.RemoveStaleSocket(t.Context(), path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if !exists(file) || !exists(socket) {
		t.Errorf("file is there: %v, living socket is there: %v", exists(file), exists(socket))
	}
	l.Close()
	if err := early.RemoveStaleSocket(t.Context(), socket); err != nil || exists(socket) {
		t.Errorf("stale socket is there: %v, %v", exists(socket), err)
	}
	if st, err := os.Stat(dir); err != nil || st.Mode()&fs.ModeDir == 0 {
		t.Error(err)
	}
}
