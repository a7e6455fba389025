package shim

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// requirements.md#I1
func TestOutputReachesTheFifosAndEndsWithTheProcess(t *testing.T) {
	out, errs := mkfifo(t, "out"), mkfifo(t, "err")
	r := newRig(t, streams{stdout: out, stderr: errs}, owner{})
	gotOut, gotErr := client(t, out), client(t, errs)
	c := r.start("echo to stdout; echo to stderr >&2")
	if code := exitCode(t, c); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	// Before Delete: clients that wait for the end first must see it.
	if s := wait.For(t, "end of stdout", gotOut); s != "to stdout\n" {
		t.Errorf("stdout: %q", s)
	}
	if s := wait.For(t, "end of stderr", gotErr); s != "to stderr\n" {
		t.Errorf("stderr: %q", s)
	}
	r.drain()
}

// A client that is slow to open its end gets the output of a short process, too: it gives up
// opening when the process has ended (containerd#8643).
// requirements.md#I1
func TestAClientThatIsAboutToOpenAFifoIsWaitedFor(t *testing.T) {
	path := mkfifo(t, "out")
	type ends struct {
		hold, w *os.File
		err     error
	}
	opened := make(chan ends, 1)
	go func() {
		hold, w, err := openFifo(t.Context(), path)
		opened <- ends{hold, w, err}
	}()
	select {
	case <-opened:
		t.Fatal("a fifo without a client was opened")
	case <-time.After(20 * time.Millisecond):
	}
	client, err := os.Open(path) // waits for the writer
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	e := wait.For(t, "the opening of the fifo", opened)
	if e.err != nil {
		t.Fatal(e.err)
	}
	defer proc.CloseFiles(e.hold, e.w)
	if _, err := e.w.WriteString("text\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := readLine(client); err != nil || line != "text\n" {
		t.Errorf("the client has read %q, %v", line, err)
	}
}

// requirements.md#I1
func TestTheWaitForAClientEndsEvenIfItsFifoIsGone(t *testing.T) {
	path := mkfifo(t, "out")
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error, 1)
	go func() {
		hold, w, err := openFifo(ctx, path)
		proc.CloseFiles(hold, w)
		opened <- err
	}()
	wait.Until(t, "the fifo is open", func() bool {
		links, _ := filepath.Glob("/proc/self/fd/*")
		return slices.ContainsFunc(links, func(link string) bool {
			target, _ := os.Readlink(link)
			return target == path
		})
	})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := wait.For(t, "the end of the wait", opened); err != nil {
		t.Error(err)
	}
}

// requirements.md#I1
func TestOpeningAFifoDoesNotWaitLongForAClient(t *testing.T) {
	in, out, errs := mkfifo(t, "in"), mkfifo(t, "out"), mkfifo(t, "err")
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		io, err := newOpener("testing", children).open(t.Context(), streams{stdin: in, stdout: out, stderr: errs}, owner{})
		if err != nil {
			t.Error(err)
			return
		}
		_ = io.Close()
	}()
	wait.For(t, "opening fifos that nobody reads", opened)
}

// requirements.md#I1
func TestAReaderThatLeavesCostsNothingAndTheNextOneGetsTheRest(t *testing.T) {
	out, in := mkfifo(t, "out"), mkfifo(t, "in")
	r := newRig(t, streams{stdin: in, stdout: out}, owner{})
	first, err := os.OpenFile(out, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := r.start("echo one; read line; echo two; echo three; read line; echo four")
	if b, err := readLine(first); err != nil || b != "one\n" {
		t.Fatalf("first reader: %q, %v", b, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(in, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	// No client reads now: the output waits in the fifo.
	wait.Until(t, "output waits in the fifo", func() bool {
		n, _ := r.waitsIn()
		return n >= len("two\nthree\n")
	})
	second := client(t, out)
	if _, err := w.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, c); code != 0 {
		t.Fatalf("exit code %d: the process was disturbed", code)
	}
	if s := wait.For(t, "end of the output", second); s != "two\nthree\nfour\n" {
		t.Errorf("second reader: %q", s)
	}
}

func readLine(f *os.File) (string, error) {
	var line []byte
	b := make([]byte, 1)
	_ = f.SetReadDeadline(time.Now().Add(wait.Patience))
	for {
		_, err := f.Read(b)
		if err != nil {
			return string(line), err
		}
		line = append(line, b[0])
		if b[0] == '\n' {
			return string(line), nil
		}
	}
}

// waitsIn returns how many bytes wait in the fifo of the first sink, and how many the fifo can
// hold. It does not open the fifo, which would count as a reader.
func (r *rig) waitsIn() (n, capacity int) {
	r.t.Helper()
	conn, err := r.io.sinks[0].w.SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) {
			// TIOCINQ is FIONREAD's other name.
			if n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
				capacity, err = unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0)
			}
		})
	}
	if err != nil {
		r.t.Fatalf("the fifo is closed for writing: %v", err)
	}
	return n, capacity
}

// requirements.md#I1
func TestEveryByteArrivesInOrderThroughASlowReader(t *testing.T) {
	const size = 4 << 20
	for _, sink := range []string{"fifo", "file"} {
		t.Run(sink, func(t *testing.T) {
			out := mkfifo(t, "out")
			uri := out
			if sink == "file" {
				out = filepath.Join(t.TempDir(), "log")
				uri = "file://" + out
			}
			r := newRig(t, streams{stdout: uri}, owner{})
			sum := make(chan string, 1)
			if sink == "fifo" {
				go func() { sum <- slowSum(out) }()
			}
			c := r.start(fmt.Sprintf("seq 1 100000000 | head -c %d", size))
			if code := exitCode(t, c); code != 0 {
				t.Fatalf("exit code %d", code)
			}
			r.drain()
			if sink == "file" {
				sum <- slowSum(out)
			}
			h := sha256.New()
			w := &limitWriter{h, size}
			for i := 1; w.left > 0; i++ {
				fmt.Fprintln(w, i)
			}
			if got, want := wait.For(t, "all of the output", sum), fmt.Sprintf("%d %x", size, h.Sum(nil)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// limitWriter passes on the first bytes only.
type limitWriter struct {
	w    io.Writer
	left int
}

func (l *limitWriter) Write(b []byte) (int, error) {
	n := len(b)
	if len(b) > l.left {
		b = b[:l.left]
	}
	l.left -= len(b)
	_, err := l.w.Write(b)
	return n, err
}

// slowSum reads a file with pauses, so that its writer finds it full.
func slowSum(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	h := sha256.New()
	n := 0
	b := make([]byte, 100_000)
	for i := 0; ; i++ {
		m, err := f.Read(b)
		n += m
		h.Write(b[:m])
		if err != nil {
			return fmt.Sprintf("%d %x", n, h.Sum(nil))
		}
		if i%64 == 0 {
			time.Sleep(2 * time.Millisecond)
		}
	}
}

// requirements.md#I1
func TestAClientThatComesAfterTheEndGetsTheRestAndTheEnd(t *testing.T) {
	for _, c := range []struct {
		what, script string
		want         int
	}{
		{"a little", "echo late", 5},
		// As much as the fifo takes, so that it is full when the process ends.
		{"a full fifo", "head -c 65536 /dev/zero", pipeSize},
		// More than a fifo takes that is not wide. The pipe takes the rest.
		{"more than a fifo", "head -c 80000 /dev/zero", 80000},
	} {
		t.Run(c.what, func(t *testing.T) {
			out := mkfifo(t, "out")
			r := newRig(t, streams{stdout: out}, owner{})
			exitCode(t, r.start(c.script))
			wait.Until(t, "the fifo holds what it can", func() bool {
				n, capacity := r.waitsIn()
				return n == min(c.want, capacity)
			})
			if s := wait.For(t, "end of the output", client(t, out)); len(s) != c.want {
				t.Errorf("got %d bytes, want %d", len(s), c.want)
			}
			r.drain()
		})
	}
}

// requirements.md#I1
func TestCloseEndsTheWaitForAClientThatNeverComes(t *testing.T) {
	out := mkfifo(t, "out")
	r := newRig(t, streams{stdout: out, stderr: out}, owner{})
	exitCode(t, r.start("echo never read"))
	r.drain()
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = r.io.Close()
	}()
	wait.For(t, "Close", closed)
}

// requirements.md#I1
func TestCloseEndsAWaitForRoomInAFullFifo(t *testing.T) {
	out := mkfifo(t, "out")
	r := newRig(t, streams{stdout: out}, owner{})
	c := r.start("exec cat /dev/zero")
	wait.Until(t, "the fifo is full", func() bool {
		n, capacity := r.waitsIn()
		return n == capacity
	})
	wait.Blocked(t, "shim.(*pump).move", 1)
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	exitCode(t, c)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = r.io.Close()
	}()
	wait.For(t, "Close", closed)
}

// requirements.md#X6
func TestDrainDoesNotOutwaitItsContextForABackgroundProcess(t *testing.T) {
	out := mkfifo(t, "out")
	r := newRig(t, streams{stdout: out}, owner{})
	got := client(t, out)
	c := r.start("sleep 1000 & echo $!; exit 0")
	exitCode(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r.io.Drain(ctx)
	if ctx.Err() == nil {
		t.Error("Drain returned although a process holds the output")
	}
	if err := r.io.Close(); err != nil {
		t.Fatal(err)
	}
	s := wait.For(t, "the end of the output, which Close forces", got)
	var pid int
	if _, err := fmt.Sscan(s, &pid); err != nil {
		t.Fatalf("output %q: %v", s, err)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// requirements.md#I3
func TestFilesAreMadeAndAppendedToAndStderrIsHonoured(t *testing.T) {
	dir := t.TempDir()
	out, errs := filepath.Join(dir, "a/b/out.log"), filepath.Join(dir, "a/err.log")
	for range 2 {
		r := newRig(t, streams{stdout: "file://" + out, stderr: "file://" + errs}, owner{})
		exitCode(t, r.start("echo out; echo err >&2"))
		r.drain()
	}
	for path, want := range map[string]string{out: "out\nout\n", errs: "err\nerr\n"} {
		b, err := os.ReadFile(path)
		if err != nil || string(b) != want {
			t.Errorf("%s: %q, %v; want %q", path, b, err, want)
		}
	}
	for path, want := range map[string]os.FileMode{filepath.Dir(out): 0o755, out: 0o644} {
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, st.Mode().Perm(), want)
		}
	}
}

// requirements.md#I3
func TestOneFileForBothStreamsIsOpenedOnceAndKeepsBoth(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	r := newRig(t, streams{stdout: "file://" + log, stderr: "file://" + log}, owner{})
	if n := len(r.io.sinks); n != 1 {
		t.Errorf("%d sinks", n)
	}
	exitCode(t, r.start("echo out; exec >&-; echo err >&2"))
	r.drain()
	b, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(b), "out\n") || !strings.Contains(string(b), "err\n") {
		t.Errorf("%q, %v", b, err)
	}
}

func TestAFullDiskDoesNotStopTheProcess(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("needs /dev/full")
	}
	r := newRig(t, streams{stdout: "/dev/full"}, owner{})
	if code := exitCode(t, r.start("head -c 1000000 /dev/zero")); code != 0 {
		t.Errorf("exit code %d", code)
	}
	r.drain()
}

func TestNoStreamsMeanDevNull(t *testing.T) {
	r := newRig(t, streams{}, owner{})
	if f := r.io.Files(); f != [3]*os.File{} {
		t.Errorf("files: %v", f)
	}
	exitCode(t, r.start("cat; echo x"))
	r.drain()
}

// requirements.md#I6
func TestStreamsBelongToTheUserOfTheOptions(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files away")
	}
	in, out := mkfifo(t, "in"), mkfifo(t, "out")
	r := newRig(t, streams{stdin: in, stdout: out}, owner{uid: 1234, gid: 5678})
	for i, f := range r.io.Files() {
		if f == nil {
			continue
		}
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if sys := st.Sys().(*syscall.Stat_t); sys.Uid != 1234 || sys.Gid != 5678 {
			t.Errorf("descriptor %d belongs to %d:%d", i, sys.Uid, sys.Gid)
		}
	}
}

func TestAnInputThatIsNoFifoKeepsItsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files away")
	}
	path := filepath.Join(t.TempDir(), "null") // as /dev/null of the host
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Skip(err)
	}
	newRig(t, streams{stdin: path, stdout: path}, owner{uid: 1234, gid: 5678})
	if st, err := os.Stat(path); err != nil || st.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the device belongs to %+v, %v", st.Sys(), err)
	}
}

func TestALogWhoseNameIsThatOfAFifoIsNotWaitedFor(t *testing.T) {
	fifo := mkfifo(t, "log")
	for _, uri := range []string{"file://" + fifo, "file://" + fifo + "?max-size=20000"} {
		o := newOpener("testing", children)
		if io, err := o.open(t.Context(), streams{stdout: uri}, owner{}); !errors.Is(err, unix.ENXIO) {
			_ = io.Close()
			t.Errorf("%s: %v, want ENXIO: the fifo has no reader", uri, err)
		}
		o.close(t.Context())
	}
}

// requirements.md#I8
func TestWhatIsOpenedIsCloseOnExecAndWhatIsInheritedBlocks(t *testing.T) {
	in, out := mkfifo(t, "in"), mkfifo(t, "out")
	before := map[string]bool{}
	for _, fd := range openFDs(t) {
		before[fd] = true
	}
	r := newRig(t, streams{stdin: in, stdout: out, stderr: "file://" + filepath.Join(t.TempDir(), "log")}, owner{})
	opened := 0
	for _, name := range openFDs(t) {
		if before[name] {
			continue
		}
		opened++
		fd, _, _ := strings.Cut(name, "=")
		n, err := strconv.Atoi(fd)
		if err != nil {
			t.Fatal(err)
		}
		flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("%s has flags %#x, %v", name, flags, err)
		}
	}
	if opened == 0 {
		t.Fatal("nothing was opened")
	}
	for i, f := range r.io.Files() {
		flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_NONBLOCK != 0 {
			t.Errorf("descriptor %d has flags %#x, %v", i, flags, err)
		}
	}
}

// requirements.md#I9
func TestCloseWithoutBeginLeavesNothing(t *testing.T) {
	checkFDs(t)
	in, out := mkfifo(t, "in"), mkfifo(t, "out")
	for _, st := range []streams{
		{stdin: in, stdout: out, stderr: out},
		{stdin: in, stdout: out, terminal: true},
		{stdin: in, stdout: "file://" + filepath.Join(t.TempDir(), "log")},
	} {
		io, err := newOpener("testing", children).open(t.Context(), st, owner{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := io.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := io.Begin(nil); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("Begin after Close: %v", err)
		}
	}
}

// requirements.md#I9
func TestAFailedOpenLeavesNothing(t *testing.T) {
	checkFDs(t)
	in, out := mkfifo(t, "in"), mkfifo(t, "out")
	for _, st := range []streams{
		{stdin: in, stdout: out, stderr: "/no/such/fifo"},
		{stdin: in, stdout: "/no/such/fifo", terminal: true},
		{stdin: "/no/such/fifo", stdout: out},
	} {
		_, err := newOpener("testing", children).open(t.Context(), st, owner{})
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%+v: %v", st, err)
		}
	}
}

func TestAClientThatReadsLateIsWaitedFor(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		t.Run(map[bool]string{false: "pipe", true: "terminal"}[terminal], func(t *testing.T) {
			out := mkfifo(t, "out")
			late, err := os.OpenFile(out, os.O_RDONLY|unix.O_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer late.Close()
			r := newRig(t, streams{stdout: out, terminal: terminal}, owner{})
			r.io.patience = wait.Patience
			run := r.start
			if terminal {
				run = r.terminal
			}
			exitCode(t, run("echo late"))
			settled := make(chan struct{})
			go func() { defer close(settled); r.io.Settle(t.Context(), time.Now()) }()
			wait.Still(t, "the number of waits that have ended", func() int {
				select {
				case <-settled:
					return 1
				default:
					return 0
				}
			})
			b := make([]byte, 100)
			if n, err := late.Read(b); err != nil || strings.TrimSpace(string(b[:n])) != "late" {
				t.Errorf("got %q, %v", b[:n], err)
			}
			wait.For(t, "the end of the wait", settled)
		})
	}
}

func TestAClientThatDoesNotReadIsNotWaitedForLong(t *testing.T) {
	out := mkfifo(t, "out")
	client, err := os.OpenFile(out, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	r := newRig(t, streams{stdout: out}, owner{})
	exitCode(t, r.start("echo unread"))
	r.drain()
	r.io.Settle(t.Context(), time.Now())                // ends after a second
	r.io.Settle(t.Context(), time.Now().Add(time.Hour)) // so does one whose end is a stage1's word, or of a clock that was set back
	if err := r.io.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(client); err != nil || string(b) != "unread\n" {
		t.Errorf("got %q, %v", b, err)
	}
	r.io.Settle(t.Context(), time.Now().Add(time.Hour)) // the streams are closed
}
