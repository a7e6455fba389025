package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// streams are the standard streams of a process under test.
type streams struct {
	theirs [3]*os.File // the process's ends, until Begin
	in     *os.File
	out    *transcript
	err    *transcript

	mu      sync.Mutex
	console *os.File
	size    pod.Size
	readers sync.WaitGroup
}

var _ pod.Stdio = (*streams)(nil)

// newStreams returns pipes. With terminal it returns streams that wait for a console.
func newStreams(terminal bool) (*streams, error) {
	s := &streams{out: newTranscript(), err: newTranscript()}
	if terminal {
		return s, nil
	}
	var ours [3]*os.File
	for fd := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		ours[fd], s.theirs[fd] = r, w
		if fd == 0 {
			ours[fd], s.theirs[fd] = w, r
		}
	}
	s.in = ours[0]
	s.read(ours[1], s.out)
	s.read(ours[2], s.err)
	return s, nil
}

func (s *streams) read(f *os.File, into *transcript) {
	s.readers.Go(func() {
		defer f.Close()
		defer into.end()
		buf := make([]byte, 4096)
		for {
			n, err := f.Read(buf)
			into.add(buf[:n])
			if err != nil { // a terminal ends with EIO
				return
			}
		}
	})
}

// Files implements pod.Stdio.
func (s *streams) Files() [3]*os.File { return s.theirs }

// Begin implements pod.Stdio.
func (s *streams) Begin(console *os.File) error {
	s.closeTheirs()
	if console == nil {
		return nil
	}
	s.mu.Lock()
	s.console = console
	s.mu.Unlock()
	// Duplicate the console, so that closing the reader's descriptor does not close
	// console.
	fd, err := unix.FcntlInt(console.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return fmt.Errorf("duplicate the console: %w", err)
	}
	s.read(os.NewFile(uintptr(fd), "console"), s.out)
	s.err.end()
	return s.Resize(s.size)
}

func (s *streams) closeTheirs() {
	for i, f := range s.theirs {
		if f != nil {
			_ = f.Close()
		}
		s.theirs[i] = nil
	}
}

// CloseStdin implements pod.Stdio.
func (s *streams) CloseStdin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in == nil {
		return nil
	}
	err := s.in.Close()
	s.in = nil
	return err
}

// Resize implements pod.Stdio.
func (s *streams) Resize(size pod.Size) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = size
	if s.console == nil || size == (pod.Size{}) {
		return nil
	}
	return unix.IoctlSetWinsize(int(s.console.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width})
}

// Settle implements pod.Stdio.
func (s *streams) Settle(context.Context, time.Time) {}

// Drain implements pod.Stdio.
func (s *streams) Drain(ctx context.Context) {
	for _, t := range []*transcript{s.out, s.err} {
		_, _ = t.all(ctx)
	}
}

// Close implements pod.Stdio.
func (s *streams) Close() error {
	s.closeTheirs()
	err := s.CloseStdin()
	s.mu.Lock()
	console := s.console
	s.console = nil
	s.mu.Unlock()
	if console != nil {
		err = errors.Join(err, console.Close())
	}
	return err
}

// write sends input.
func (s *streams) write(text string) error {
	s.mu.Lock()
	f := s.in
	if s.console != nil {
		f = s.console
	}
	s.mu.Unlock()
	if f == nil {
		return errors.New("its input is closed")
	}
	_, err := f.WriteString(text)
	return err
}

// surroundings reads the n-th line that the verb inspect has written.
func (s *streams) surroundings(ctx context.Context, n int) (surroundings, error) {
	var seen surroundings
	text, err := s.out.await(ctx, func(text string) bool { return strings.Count(text, "\n") > n })
	if err != nil {
		return seen, fmt.Errorf("the app's output: %w", err)
	}
	line := strings.TrimSpace(strings.Split(text, "\n")[n])
	if err := json.Unmarshal([]byte(line), &seen); err != nil {
		return seen, fmt.Errorf("the app's output is %.200q and not what its program writes", line)
	}
	return seen, nil
}

// answers reads the line that the verb observe has written.
func (s *streams) answers(ctx context.Context) (map[string]string, error) {
	text, err := s.out.await(ctx, func(text string) bool { return strings.Contains(text, "\n") })
	if err != nil {
		return nil, fmt.Errorf("the program's output: %w, and its errors are %.200q", err, s.err.now())
	}
	answers := map[string]string{}
	line, _, _ := strings.Cut(text, "\n") // the program may write more
	if err := json.Unmarshal([]byte(line), &answers); err != nil {
		return nil, fmt.Errorf("the program's output is %.200q and not what it writes", text)
	}
	return answers, nil
}

// transcript is the text that was read from a stream.
type transcript struct {
	mu      sync.Mutex
	text    []byte
	ended   bool
	changed chan struct{} // closed when another field changes
}

func newTranscript() *transcript { return &transcript{changed: make(chan struct{})} }

func (t *transcript) add(b []byte) { t.change(func() { t.text = append(t.text, b...) }) }
func (t *transcript) end()         { t.change(func() { t.ended = true }) }

func (t *transcript) change(how func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	how()
	close(t.changed)
	t.changed = make(chan struct{})
}

// now returns the text so far.
func (t *transcript) now() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// wait returns the text when done returns true. done gets the text, and whether the stream
// has ended.
func (t *transcript) wait(ctx context.Context, done func(text string, ended bool) bool) (string, error) {
	for {
		t.mu.Lock()
		text, ended, changed := string(t.text), t.ended, t.changed
		t.mu.Unlock()
		if done(text, ended) {
			return text, nil
		}
		if err := await(ctx, changed); err != nil {
			return text, err
		}
	}
}

// await waits until wanted returns true for the text, and returns the text.
func (t *transcript) await(ctx context.Context, wanted func(string) bool) (string, error) {
	text, err := t.wait(ctx, func(text string, ended bool) bool { return ended || wanted(text) })
	switch {
	case err != nil:
		err = fmt.Errorf("%w, and it is still %.200q", err, text)
	case !wanted(text):
		err = fmt.Errorf("it has ended with %.200q", text)
	}
	return text, err
}

// awaitWord waits for a word in the text.
func (t *transcript) awaitWord(ctx context.Context, word string) error {
	_, err := t.await(ctx, func(text string) bool { return strings.Contains(text, word) })
	if err != nil {
		return fmt.Errorf("wait for %q in the output: %w", word, err)
	}
	return nil
}

// all waits for the end of the stream and returns the text.
func (t *transcript) all(ctx context.Context) (string, error) {
	text, err := t.wait(ctx, func(_ string, ended bool) bool { return ended })
	if err != nil {
		err = fmt.Errorf("%w, and the output has not ended: something keeps it open", err)
	}
	return text, err
}
