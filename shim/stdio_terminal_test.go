package shim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// terminal runs a shell script on a new pty, and begins to carry it.
func (r *rig) terminal(script string) *proc.Child {
	r.t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		r.t.Skipf("needs /dev/ptmx: %v", err)
	}
	master := os.NewFile(uintptr(fd), "ptmx")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		r.t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		r.t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer slave.Close()
	c := r.spawn(script, &os.ProcAttr{
		Env:   os.Environ(),
		Files: []*os.File{slave, slave, slave},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: true},
	})
	if err := r.io.Begin(master); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// requirements.md#I5
func TestATerminalWorksWithEveryKindOfSink(t *testing.T) {
	for _, kind := range []string{"fifo", "file", "binary", "none"} {
		t.Run(kind, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			st := streams{terminal: true, stderr: "/not/used"}
			var got <-chan string
			switch kind {
			case "fifo":
				st.stdout = mkfifo(t, "out")
				got = client(t, st.stdout)
			case "file":
				st.stdout = "file://" + log
			case "binary":
				st.stdout = loggerURI(t, "plain", log, "")
			}
			r := newRig(t, st, owner{})
			if f := r.io.Files(); f != [3]*os.File{} {
				t.Errorf("files with a terminal: %v", f)
			}
			c := r.terminal("echo out; echo err >&2")
			if code := exitCode(t, c); code != 0 {
				t.Errorf("exit code %d", code)
			}
			r.drain()
			switch kind {
			case "fifo":
				if s := wait.For(t, "end of the output", got); s != "out\r\nerr\r\n" {
					t.Errorf("got %q", s)
				}
			case "file", "binary":
				b, err := os.ReadFile(log)
				if want := map[string]string{"file": "out\r\nerr\r\n", "binary": "1:out\r\n1:err\r\n"}[kind]; err != nil || string(b) != want {
					t.Errorf("got %q, %v; want %q", b, err, want)
				}
			}
		})
	}
}

// requirements.md#I5
func TestAllOutputOfATerminalArrives(t *testing.T) {
	out := mkfifo(t, "out")
	r := newRig(t, streams{stdout: out, terminal: true}, owner{})
	got := client(t, out)
	exitCode(t, r.terminal("seq 1 60000"))
	r.drain()
	lines := strings.Split(wait.For(t, "end of the output", got), "\r\n")
	if len(lines) != 60001 || lines[59999] != "60000" {
		t.Errorf("%d lines, the last is %q", len(lines), lines[max(0, len(lines)-2)])
	}
}

// requirements.md#T10
func TestASizeSetBeforeTheTerminalExistsSticks(t *testing.T) {
	in, out := mkfifo(t, "in"), mkfifo(t, "out")
	r := newRig(t, streams{stdin: in, stdout: out, terminal: true}, owner{})
	got, err := os.OpenFile(out, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	for _, size := range []pod.Size{{Width: 1, Height: 2}, {Width: 34, Height: 12}} {
		if err := r.io.Resize(size); err != nil {
			t.Fatal(err)
		}
	}
	// The shell waits for a line before it asks, so that Begin is over.
	c := r.terminal("stty -echo; echo ready; read x; stty size; read x; stty size")
	w, err := os.OpenFile(in, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	expect := func(want string) {
		t.Helper()
		if s, err := readLine(got); err != nil || s != want+"\r\n" {
			t.Fatalf("got %q, %v; want %q", s, err, want)
		}
	}
	expect("ready")
	fmt.Fprintln(w)
	expect("12 34")
	if err := r.io.Resize(pod.Size{Width: 100, Height: 50}); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(w)
	expect("50 100")
	exitCode(t, c)
}

// requirements.md#T10
func TestWithoutATerminalResizeIsANoOp(t *testing.T) {
	r := newRig(t, streams{}, owner{})
	if err := r.io.Resize(pod.Size{Width: 1, Height: 1}); err != nil {
		t.Error(err)
	}
}

// requirements.md#I5
func TestInputReachesATerminalAndClientsComeAndGo(t *testing.T) {
	in, out := mkfifo(t, "in"), mkfifo(t, "out")
	r := newRig(t, streams{stdin: in, stdout: out, terminal: true}, owner{})
	got := client(t, out)
	c := r.terminal("stty -echo; read a; read b; echo $a-$b")
	for _, s := range []string{"one\n", "two\n"} {
		if err := os.WriteFile(in, []byte(s), 0); err != nil {
			t.Fatal(err)
		}
	}
	exitCode(t, c)
	r.io.ended()
	if s := wait.For(t, "end of the output", got); !strings.Contains(s, "one-two\r\n") {
		t.Errorf("got %q", s)
	}
}

// requirements.md#I5
func TestATerminalThatNobodyHasOpenForAWhileGoesOn(t *testing.T) {
	in, out := mkfifo(t, "in"), mkfifo(t, "out")
	r := newRig(t, streams{stdout: out, terminal: true}, owner{})
	got := client(t, out)
	// The process closes the terminal and opens it again, as a service manager does.
	c := r.terminal("echo before; exec <" + in + " >/dev/null 2>&1; read x; echo after >/dev/tty; read x")
	w, err := os.OpenFile(in, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	// The fifo has a reader, so the terminal is closed or about to be.
	wait.Until(t, "the process let go of its terminal", func() bool {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/2", c.PID()))
		return err == nil && to == os.DevNull
	})
	fmt.Fprint(w, "go\n")
	fmt.Fprint(w, "end\n")
	exitCode(t, c)
	select {
	case s := <-got:
		t.Fatalf("the output ended before the process was known to have: %q", s)
	case <-time.After(50 * time.Millisecond):
	}
	r.io.ended()
	if s := wait.For(t, "end of the output", got); s != "before\r\nafter\r\n" {
		t.Errorf("got %q", s)
	}
}

// requirements.md#I5
func TestATerminalEndsWithItsProcessAlthoughABackgroundJobHasItOpen(t *testing.T) {
	out := mkfifo(t, "out")
	r := newRig(t, streams{stdout: out, terminal: true}, owner{})
	got := client(t, out)
	c := r.terminal("(trap '' HUP; exec sleep 1000) & echo $!; seq 1 2000")
	exitCode(t, c)
	r.io.ended()
	lines := strings.Split(wait.For(t, "end of the output", got), "\r\n")
	job, err := strconv.Atoi(lines[0])
	if err != nil {
		t.Fatalf("no pid of the job: %q", lines[0])
	}
	defer func() { _ = unix.Kill(job, unix.SIGKILL) }()
	if len(lines) != 2002 || lines[2000] != "2000" {
		t.Errorf("%d lines, the last is %q", len(lines), lines[max(0, len(lines)-2)])
	}
	if err := unix.Kill(job, 0); err != nil {
		t.Errorf("the job has ended, so nothing was tested: %v", err)
	}
	if err := r.io.Resize(pod.Size{Width: 1, Height: 1}); err != nil {
		t.Errorf("resize after the end: %v", err)
	}
}

// requirements.md#I5
func TestCloseHangsUpTheTerminal(t *testing.T) {
	out := mkfifo(t, "out")
	r := newRig(t, streams{stdout: out, terminal: true}, owner{})
	c := r.terminal("sleep 1000")
	if err := r.io.Close(); err != nil {
		t.Fatal(err)
	}
	exitCode(t, c)
	if sig := c.Wait().Signal; sig != int(unix.SIGHUP) {
		t.Errorf("ended by signal %d", sig)
	}
}

// requirements.md#I5
func TestDrainOfATerminalWaitsForAllOfIt(t *testing.T) {
	out := mkfifo(t, "out")
	r := newRig(t, streams{stdout: out, terminal: true}, owner{})
	c := r.terminal("seq 1 3000")
	// Without a reader the child cannot end: the fifo is full by now or will be.
	got := make(chan string, 1)
	go func() { got <- <-client(t, out) }()
	exitCode(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	r.io.Drain(ctx)
	if err := r.io.Close(); err != nil {
		t.Fatal(err)
	}
	if s := wait.For(t, "end of the output", got); !strings.HasSuffix(s, "3000\r\n") {
		t.Errorf("the end is %q", s[max(0, len(s)-20):])
	}
}
