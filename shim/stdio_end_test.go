package shim

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// openEnd opens a client's end of a fifo for output.
func openEnd(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// atEnd reports whether a fifo has neither bytes nor a writer.
func atEnd(t *testing.T, f *os.File) bool { return state(t, f) == unix.POLLHUP }

// state returns what poll(2) says about the client's end of a fifo.
func state(t *testing.T, f *os.File) (events int16) {
	t.Helper()
	if err := proc.Control(f, func(fd int) error { events = polls(fd); return nil }); err != nil {
		t.Fatal(err)
	}
	return events
}

// The program closes its outputs in an order of its own, and goes on: containerd's CRI stops reading the client's input
// at the first end.
// requirements.md#I1
func TestOutputsEndWithTheProcessInWhateverOrderItHasClosedThem(t *testing.T) {
	for name, closes := range map[string]string{
		"stdout":              "exec >&-",
		"stderr":              "exec 2>&-",
		"stderr, then stdout": "exec 2>&-; exec >&-",
	} {
		t.Run(name, func(t *testing.T) {
			in, out, errs := mkfifo(t, "in"), mkfifo(t, "out"), mkfifo(t, "err")
			stdout, stderr := openEnd(t, out), openEnd(t, errs)
			r := newRig(t, streams{stdin: in, stdout: out, stderr: errs}, owner{})
			c := r.start(closes + "; read line; exit 0")
			r.io.feed()
			stdin, err := os.OpenFile(in, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer stdin.Close()
			wait.Still(t, "the outputs that have ended", func() string {
				return fmt.Sprint(atEnd(t, stdout), atEnd(t, stderr))
			})
			if atEnd(t, stdout) || atEnd(t, stderr) {
				t.Errorf("an output has ended before the process: stdout %t, stderr %t", atEnd(t, stdout), atEnd(t, stderr))
			}
			fmt.Fprintln(stdin)
			if code := exitCode(t, c); code != 0 {
				t.Errorf("exit code %d", code)
			}
			for _, f := range []*os.File{stdout, stderr} {
				wait.Until(t, "the end of the output", func() bool { return atEnd(t, f) })
			}
			r.drain()
		})
	}
}

// The answer to Wait, which Settle precedes, finds nothing on the way.
// requirements.md#I1
func TestTheClientHasTheEndOfTheOutputWhenItLearnsOfTheExit(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		for _, script := range []string{"exit 0", "echo text", "head -c 500000 /dev/zero", "exec >&-; true"} {
			t.Run(fmt.Sprintf("%s, terminal %t", script, terminal), func(t *testing.T) {
				if terminal && strings.Contains(script, ">&-") {
					t.Skip("a terminal has one stream")
				}
				out := mkfifo(t, "out")
				client := openEnd(t, out)
				r := newRig(t, streams{stdout: out, terminal: terminal}, owner{})
				r.io.patience = wait.Patience
				run := r.start
				if terminal {
					run = r.terminal
				}
				read := make(chan error, 1)
				go func() { // from now on there is a writer
					_, err := io.Copy(io.Discard, client)
					read <- err
				}()
				exitCode(t, run(script))
				r.io.Settle(t.Context(), time.Now())
				if !atEnd(t, client) {
					t.Error("the output has not ended when the exit is reported")
				}
				if err := wait.For(t, "the client", read); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A client that does not read in time gets the rest and the end later.
// requirements.md#I1
func TestAClientThatIsSlowFindsTheEndAfterTheRest(t *testing.T) {
	out := mkfifo(t, "out")
	client := openEnd(t, out)
	r := newRig(t, streams{stdout: out}, owner{})
	r.io.patience = 0
	exitCode(t, r.start("echo late"))
	wait.Until(t, "the output has come", func() bool { return state(t, client)&unix.POLLIN != 0 })
	wait.Until(t, "no writer is left", func() bool { return state(t, client)&unix.POLLHUP != 0 })
	r.io.Settle(t.Context(), time.Now())
	if b, err := io.ReadAll(client); err != nil || string(b) != "late\n" {
		t.Errorf("got %q, %v", b, err)
	}
}
