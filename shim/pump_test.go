package shim

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// A stream is ended by closing one of its files. The stream must not report that as an
// error.
func TestAStreamThatIsClosedHasNoErrorToReport(t *testing.T) {
	for name, closes := range map[string]func(src, dst *os.File){
		"at its source": func(src, _ *os.File) { _ = src.Close() },
		"at its sink":   func(_, dst *os.File) { _ = dst.Close() },
	} {
		for how, step := range map[string]func(*pump) func() error{
			"spliced": func(p *pump) func() error { return p.splice },
			"copied":  func(p *pump) func() error { return p.copy },
		} {
			t.Run(how+", "+name, func(t *testing.T) {
				src, from, err := pipe(ours, ours)
				if err != nil {
					t.Fatal(err)
				}
				defer from.Close()
				defer src.Close()
				to, dst, err := pipe(ours, ours)
				if err != nil {
					t.Fatal(err)
				}
				defer to.Close()
				defer dst.Close()
				if name == "at its sink" { // full, or the pump would not wait for it
					fillUp(t, dst)
					if _, err := from.WriteString("more"); err != nil {
						t.Fatal(err)
					}
				}
				p := &pump{src: src, dst: &sink{name: "stdin", w: dst}, buffers: newBuffers()}
				ended := make(chan error, 1)
				go func() { ended <- p.move(step(p)) }()
				wait.Blocked(t, "shim.(*pump).move", 1)
				closes(src, dst)
				if err := wait.For(t, "its end", ended); !errors.Is(err, os.ErrClosed) {
					t.Errorf("it ended with %v", err)
				}
			})
		}
	}
}

// fillUp writes to a pipe until it takes no more.
func fillUp(t *testing.T, to *os.File) {
	t.Helper()
	if err := to.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for err := error(nil); err == nil; {
		_, err = to.Write(make([]byte, 64<<10))
	}
	if err := to.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
}

// A pipe's memory is the kernel's, and a pod has many streams that say little.
func TestOnlyAStreamWithMuchToCarryGetsWidePipes(t *testing.T) {
	for name, test := range map[string]struct {
		bytes int
		want  int
	}{
		"a few lines":                 {1000, pipeSize},
		"as much as a pipe will hold": {pipeSize, widePipe},
	} {
		t.Run(name, func(t *testing.T) {
			src, from, err := pipe(ours, ours)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			to, dst, err := pipe(ours, ours)
			if err != nil {
				t.Fatal(err)
			}
			defer to.Close()
			defer dst.Close()
			if _, err := from.Write(make([]byte, test.bytes)); err != nil {
				t.Fatal(err)
			}
			_ = from.Close()
			p := &pump{src: src, dst: &sink{name: "stdout", w: dst, splice: true}, buffers: newBuffers()}
			p.run()
			for what, f := range map[string]*os.File{"source": src, "sink": dst} {
				if got, err := unix.FcntlInt(f.Fd(), unix.F_GETPIPE_SZ, 0); err != nil || got != test.want {
					t.Errorf("the %s holds %d bytes (%v), want %d", what, got, err, test.want)
				}
			}
		})
	}
}

// A profile of seccomp around containerd, or gVisor, may deny splice(2). The kernel itself refuses it
// for a file that was opened for appending.
func TestOutputArrivesAlthoughSpliceIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	src, from, err := pipe(ours, ours)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	p := &pump{src: src, dst: &sink{name: "file", w: to, splice: true}, buffers: newBuffers(), own: &owner{}}
	ended := make(chan struct{})
	go func() {
		p.run()
		close(ended)
	}()
	for _, text := range []string{"one\n", "two\n"} {
		if _, err := from.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	from.Close()
	wait.For(t, "the end of the stream", ended)
	if text, err := os.ReadFile(path); err != nil || string(text) != "one\ntwo\n" {
		t.Errorf("got %q, %v", text, err)
	}
	if !p.refused {
		t.Error("splice was not refused, so nothing was tested")
	}
}
