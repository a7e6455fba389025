package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/containerd/console"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// terminal is a pty, with the text that a user at it would see.
type terminal struct {
	master console.Console
	slave  *os.File

	mu   sync.Mutex
	seen bytes.Buffer
}

// newTerminal allocates a pty of some rows and columns, and reads its output until the test
// ends.
func newTerminal(t *testing.T, rows, columns uint16) *terminal {
	t.Helper()
	master, path, err := console.NewPty()
	if err != nil {
		t.Fatal(err)
	}
	if err := master.Resize(console.WinSize{Height: rows, Width: columns}); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{master: master, slave: slave}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(writerFunc(term.write), master) // ends with EIO
	}()
	t.Cleanup(func() {
		slave.Close()
		master.Close()
		<-done
	})
	return term
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func (term *terminal) write(p []byte) (int, error) {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.seen.Write(p)
}

// text returns the text that was seen, without carriage returns: with ctr the outer terminal
// adds its own.
func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return strings.ReplaceAll(term.seen.String(), "\r", "")
}

func (term *terminal) await(t *testing.T, text string) {
	t.Helper()
	wait.Observe(t, fmt.Sprintf("%q is on the terminal", text), func() (bool, string) {
		return strings.Contains(term.text(), text), fmt.Sprintf("%q", term.text())
	})
}

func (term *terminal) enter(t *testing.T, text string) {
	t.Helper()
	if _, err := term.master.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// atTerminal runs ctr as the foreground program of a terminal. ended waits for it and returns
// its exit code.
func (c *column) atTerminal(t *testing.T, term *terminal, args ...string) (ended func() int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*wait.Patience)
	cmd := c.daemon.Ctr(ctx, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.slave, term.slave, term.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	return func() int {
		defer cancel()
		_ = cmd.Wait() // the exit code is enough
		return cmd.ProcessState.ExitCode()
	}
}

func TestRunAtATerminal(t *testing.T) {
	eachRelease(t, func(t *testing.T, c *column) {
		term := newTerminal(t, 33, 99)
		ended := c.atTerminal(t, term, c.runArgs([]string{"--rm", "-t"}, c.id(), "sh", "-c",
			"tty; until testprog winsize | grep '33 99'; do sleep 0.1; done; read line; echo got $line; exit 42")...)
		term.await(t, "/dev/pts/0\n33 99\n")
		term.enter(t, "some words\r")
		term.await(t, "got some words\n")
		if code := ended(); code != 42 {
			t.Errorf("exit code %d", code)
		}
	})
}

func TestAResizeReachesTheProgram(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		term := newTerminal(t, 24, 80)
		ended := c.atTerminal(t, term, c.runArgs([]string{"--rm", "-t"}, c.id(), "testprog", "winch")...)
		term.await(t, "ready\n")
		rows := uint16(40)
		wait.Observe(t, "a new size is seen inside", func() (bool, string) {
			// A terminal signals only changes of its size, and ctr may not listen yet.
			rows++
			if err := term.master.Resize(console.WinSize{Height: rows, Width: 120}); err != nil {
				t.Fatal(err)
			}
			return strings.Contains(term.text(), " 120\n"), fmt.Sprintf("%q", term.text())
		})
		term.enter(t, "\r")
		if code := ended(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
}

func TestExecAtATerminal(t *testing.T) {
	eachRelease(t, func(t *testing.T, c *column) {
		id := c.start(t, nil, "testprog", "sleep", "1000")
		shim := c.shim(t, id)
		before := len(c.descriptors(t, shim))
		for i := range 3 {
			term := newTerminal(t, 20, 50)
			ended := c.atTerminal(t, term, "task", "exec", "-t", "--exec-id", fmt.Sprintf("t%d", i), "--fifo-dir", fifoDir(c.daemon.Dir()), id,
				"sh", "-c", "stty -echo; echo ready; read line; echo \"[$line]\"; test -t 0 && test -t 1 && test -t 2 && exit 9")
			term.await(t, "ready\n")
			term.enter(t, "typed\r")
			term.await(t, "[typed]\n")
			if code := ended(); code != 9 {
				t.Errorf("exit code %d", code)
			}
		}
		if c.name != "runc" {
			wait.Observe(t, "the ptys are closed (requirements.md#I5)", func() (bool, string) {
				now := c.descriptors(t, shim)
				return len(now) <= before, fmt.Sprintf("%d before, now %q", before, now)
			})
		}
	})
}

// A daemon that was started at a prompt must not hold the prompt.
func TestATerminalEndsWithItsProcessAlthoughABackgroundJobHasItOpen(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		const script = "trap '' HUP; sleep 1000 & echo last words; exit 9"
		id := c.start(t, nil, "testprog", "sleep", "1000")
		for name, args := range map[string][]string{
			"exec": {"task", "exec", "-t", "--exec-id", "t", "--fifo-dir", fifoDir(c.daemon.Dir()), id, "sh", "-c", script},
			"run":  c.runArgs([]string{"--rm", "-t"}, c.id(), "sh", "-c", script),
		} {
			term := newTerminal(t, 20, 50)
			code := c.atTerminal(t, term, args...)()
			// runc's shim loses the output of a run that ends at once.
			if code != 9 || c.name != "runc" && !strings.Contains(term.text(), "last words\n") {
				t.Errorf("%s: exit code %d, want 9; output %q", name, code, term.text())
			}
		}
	})
}

func TestAResizeBeforeStartSticks(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		var out streams
		container := c.container(t, []string{"testprog", "winsize"}, oci.WithTTY)
		task := c.newTask(t, container, cio.NewCreator(cio.WithStreams(nil, &out.stdout, nil), cio.WithTerminal, cio.WithFIFODir(fifoDir(c.daemon.Dir()))))
		exited := c.wait(t, task)
		if err := task.Resize(ctx, 34, 12); err != nil {
			t.Errorf("resize: %v (requirements.md#T10)", err)
		}
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 0)
		awaitOutput(t, task)
		deleteTask(t, ctx, task)
		if out.stdout.String() != "12 34\r\n" {
			t.Errorf("size %q", out.stdout.String())
		}
	})
}

// The first thing that the program sees is the size, with a stage1 that is slow to answer, too.
// requirements.md#T10
func TestAResizeBetweenExecAndStartIsSeenByTheFirstInstruction(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		spec, err := task.Spec(ctx)
		must(t, err)
		process := *spec.Process
		process.Terminal, process.Args = true, []string{"testprog", "winsize"}
		for i := range 12 {
			var out streams
			exec, err := task.Exec(ctx, fmt.Sprint("exec", i), &process, cio.NewCreator(cio.WithStreams(nil, &out.stdout, nil), cio.WithTerminal, cio.WithFIFODir(fifoDir(c.daemon.Dir()))))
			must(t, err)
			exited, err := exec.Wait(ctx)
			must(t, err)
			must(t, exec.Resize(ctx, 34, 12))
			must(t, exec.Start(ctx))
			expectExit(t, exited, 0)
			exec.IO().Wait()
			_, err = exec.Delete(ctx)
			must(t, err)
			if out.stdout.String() != "12 34\r\n" {
				t.Errorf("exec %d: size %q", i, out.stdout.String())
			}
		}
	})
}

func TestAllOutputOfATerminalArrives(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		const size = 1 << 20
		var out streams
		container := c.container(t, []string{"testprog", "bytes", fmt.Sprint(size)}, oci.WithTTY)
		task := c.newTask(t, container, cio.NewCreator(cio.WithStreams(nil, &out.stdout, nil), cio.WithTerminal, cio.WithFIFODir(fifoDir(c.daemon.Dir()))))
		exited := c.wait(t, task)
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 0)
		awaitOutput(t, task)
		deleteTask(t, ctx, task)
		// The terminal adds a carriage return to each line of 64 bytes.
		if got, want := out.stdout.Len(), size+size/64; got != want {
			t.Errorf("%d bytes, want %d (requirements.md#I5)", got, want)
		}
	})
}
