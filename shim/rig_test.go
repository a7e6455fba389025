package shim

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// rig is a process with streams, as a pod would have it.
type rig struct {
	t  *testing.T
	io *stdio
	o  *opener
}

func newRig(t *testing.T, st streams, own owner) *rig {
	t.Helper()
	checkFDs(t)
	o := newOpener("testing", children)
	o.pause = 0 // clients come when a test wants them
	io, err := o.open(t.Context(), st, own)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t, io, o}
	t.Cleanup(func() {
		_ = io.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		o.close(ctx)
	})
	return r
}

// start runs a shell script with the streams. When it returns, the process exists and
// Begin was called.
func (r *rig) start(script string) *proc.Child {
	r.t.Helper()
	files := r.io.Files()
	attr := &os.ProcAttr{Env: os.Environ()}
	for _, f := range files {
		if f == nil {
			null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
			if err != nil {
				r.t.Fatal(err)
			}
			defer null.Close()
			f = null
		}
		attr.Files = append(attr.Files, f)
	}
	c := r.spawn(script, attr)
	if err := r.io.Begin(nil); err != nil {
		r.t.Fatal(err)
	}
	told := make(chan struct{})
	go func() { // as the pod does
		defer close(told)
		<-c.Done()
		r.io.ended()
	}()
	r.t.Cleanup(func() {
		_ = c.Kill()
		<-told
	})
	return c
}

func (r *rig) spawn(script string, attr *os.ProcAttr) *proc.Child {
	r.t.Helper()
	c, err := children.Start([]string{"/bin/sh", "-c", script}, attr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = c.Kill()
		<-c.Done()
	})
	return c
}

// drain waits for the output of a process that has ended.
func (r *rig) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
	defer cancel()
	r.io.Drain(ctx)
	if ctx.Err() != nil {
		r.t.Fatal("the output does not end")
	}
}

// mkfifo makes a fifo.
func mkfifo(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := unix.Mkfifo(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// client reads a fifo to its end, as a client does.
func client(t *testing.T, path string) <-chan string {
	t.Helper()
	got := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		b, err := os.ReadFile(path)
		if err != nil {
			b = []byte(err.Error())
		}
		got <- string(b)
	}()
	t.Cleanup(func() { // if the test has failed: ends the client's wait
		if f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0); err == nil {
			_ = f.Close()
		}
		wait.For(t, "the client is gone", read)
	})
	return got
}

// exitCode waits for a process.
func exitCode(t *testing.T, c *proc.Child) int {
	t.Helper()
	wait.For(t, "the end of the process", c.Done())
	return c.Wait().Code
}
