package shim

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// requirements.md#I2
func TestInputEndsWithCloseStdinAndNotWithAClient(t *testing.T) {
	in, out := mkfifo(t, "in"), mkfifo(t, "out")
	r := newRig(t, streams{stdin: in, stdout: out}, owner{})
	got := client(t, out)
	c := r.start("cat")
	for _, s := range []string{"first client\n", "second client\n"} {
		if err := os.WriteFile(in, []byte(s), 0); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-c.Done():
		t.Fatal("the input ended with its client")
	case <-time.After(100 * time.Millisecond):
	}
	for range 2 {
		if err := r.io.CloseStdin(); err != nil {
			t.Fatal(err)
		}
	}
	exitCode(t, c)
	if s := wait.For(t, "end of the output", got); s != "first client\nsecond client\n" {
		t.Errorf("got %q", s)
	}
}

// requirements.md#T11
func TestCloseStdinMayComeAtAnyTime(t *testing.T) {
	for _, when := range []string{"before Begin", "during Begin", "after Close"} {
		t.Run(when, func(t *testing.T) {
			in, out := mkfifo(t, "in"), mkfifo(t, "out")
			r := newRig(t, streams{stdin: in, stdout: out}, owner{})
			written := writer(t, in, "on its way\n")
			closeStdin := func() {
				if err := r.io.CloseStdin(); err != nil {
					t.Error(err)
				}
			}
			var wg sync.WaitGroup
			switch when {
			case "before Begin":
				closeStdin()
			case "during Begin":
				wg.Go(closeStdin)
			case "after Close":
				_ = r.io.Close()
				closeStdin()
				return
			}
			got := client(t, out)
			c := r.start("cat")
			wait.For(t, "the client has written", written)
			wg.Wait()
			exitCode(t, c)
			if s := wait.For(t, "end of the output", got); s != "on its way\n" {
				t.Errorf("got %q", s)
			}
		})
	}
}

// writer writes to a fifo as containerd's clients do: in the background, after it has
// waited for a reader. writer returns when that wait has begun.
func writer(t *testing.T, path, text string) <-chan struct{} {
	t.Helper()
	done := make(chan struct{})
	tid := make(chan int, 1)
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		tid <- unix.Gettid()
		if err := os.WriteFile(path, []byte(text), 0); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { // ends the wait if the test does not read
		if f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0); err == nil {
			defer f.Close()
		}
		wait.For(t, "the writer is gone", done)
	})
	where := fmt.Sprintf("/proc/self/task/%d/syscall", <-tid)
	wait.Until(t, "the writer waits", func() bool {
		b, err := os.ReadFile(where)
		if err != nil {
			t.Skip("needs to see what a thread waits for: ", err)
		}
		call, _, _ := strings.Cut(string(b), " ")
		return call == strconv.Itoa(unix.SYS_OPENAT)
	})
	return done
}

// A client that has written all its input before its Create is answered has no task for
// which it could call CloseIO.
// requirements.md#I2
func TestInputIsNotTakenBeforeTheProcessIsToStart(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		in, out := mkfifo(t, "in"), mkfifo(t, "out")
		newRig(t, streams{stdin: in, stdout: out, terminal: terminal}, owner{})
		written := writer(t, in, "short\n")
		select {
		case <-written:
			t.Errorf("terminal %v: the input was taken when its process did not exist", terminal)
		case <-time.After(2 * stdinPause):
		}
	}
}

// requirements.md#I2
func TestInputIsTakenWhenTheProcessIsToStartAndOtherwiseSoonAfter(t *testing.T) {
	for _, how := range []string{"fed before Begin", "fed after Begin", "not fed"} {
		in, out := mkfifo(t, "in"), mkfifo(t, "out")
		r := newRig(t, streams{stdin: in, stdout: out}, owner{})
		got := client(t, out)
		written := writer(t, in, "short\n")
		if how == "fed before Begin" {
			r.io.feed()
		}
		c := r.start("cat")
		if how == "fed after Begin" {
			r.io.feed()
			r.io.feed()
		}
		wait.For(t, how+": the client has written", written)
		if err := r.io.CloseStdin(); err != nil {
			t.Fatal(err)
		}
		exitCode(t, c)
		if s := wait.For(t, "end of the output", got); s != "short\n" {
			t.Errorf("%s: got %q", how, s)
		}
	}
}

// Input that no process reads must neither block the client for ever nor fill the log.
func TestAProcessMayEndBeforeItsInputDoes(t *testing.T) {
	in, out := mkfifo(t, "in"), mkfifo(t, "out")
	r := newRig(t, streams{stdin: in, stdout: out}, owner{})
	got := client(t, out)
	written := writer(t, in, strings.Repeat("x", 40<<10))
	exitCode(t, r.start("head -c 3"))
	wait.For(t, "the client has written", written)
	if s := wait.For(t, "end of the output", got); s != "xxx" {
		t.Errorf("got %q", s)
	}
}
