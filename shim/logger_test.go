package shim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// loggerMain is a logger. It writes every line to a file, after the number of the
// process's descriptor from which the line came. Its arguments are pairs: log FILE, mark
// FILE (it writes its pid and environment to that file).
func loggerMain(how string, args []string) int {
	opts := map[string]string{}
	for i := 0; i+1 < len(args); i += 2 {
		opts[args[i]] = args[i+1]
	}
	if mark := opts["mark"]; mark != "" {
		f, err := os.OpenFile(mark, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return 3
		}
		fmt.Fprintf(f, "pid=%d args=%s id=%s ns=%s\n", os.Getpid(), strings.Join(args, ","), os.Getenv("CONTAINER_ID"), os.Getenv("CONTAINER_NAMESPACE"))
		_ = f.Close()
	}
	ready := os.NewFile(5, "ready")
	switch how {
	case "never-ready":
		select {}
	case "crash":
		_ = ready.Close()
		return 1
	case "v2":
		_, _ = ready.Write([]byte{1})
	case "deaf": // ignores SIGTERM
		signal.Ignore(syscall.SIGTERM)
	}
	_ = ready.Close()
	if how == "deaf" {
		select {}
	}
	return carry(opts["log"])
}

// carry copies the lines of both streams until their ends.
func carry(path string) int {
	log, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 4
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for fd, name := range map[uintptr]string{3: "1:", 4: "2:"} {
		wg.Go(func() {
			s := bufio.NewScanner(os.NewFile(fd, name))
			s.Split(scanLines)
			for s.Scan() {
				mu.Lock()
				fmt.Fprintf(log, "%s%s", name, s.Text())
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return 0
}

// scanLines keeps the ends of lines.
func scanLines(b []byte, eof bool) (int, []byte, error) {
	if i := strings.IndexByte(string(b), '\n'); i >= 0 {
		return i + 1, b[:i+1], nil
	}
	if eof && len(b) > 0 {
		return len(b), b, nil
	}
	return 0, nil, nil
}

// loggerURI names this test binary as a logger.
func loggerURI(t *testing.T, how, log, mark string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("RKT_TEST_LOGGER", how)
	scheme := "binary"
	if strings.HasPrefix(how, "v2") {
		scheme = "binary-v2"
	}
	u := url.URL{Scheme: scheme, Path: self}
	// The first pair makes TestMain run the logger.
	u.RawQuery = "logger&log=" + url.QueryEscape(log) + "&mark=" + url.QueryEscape(mark)
	return u.String()
}

// marks returns what the runs of a logger wrote about themselves.
func marks(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func markedPID(t *testing.T, mark string) int {
	t.Helper()
	var pid int
	if _, err := fmt.Sscanf(mark, "pid=%d", &pid); err != nil {
		t.Fatalf("%q: %v", mark, err)
	}
	return pid
}

// requirements.md#I4
func TestALoggerGetsBothStreamsItsArgumentsAndItsEnvironment(t *testing.T) {
	for _, how := range []string{"plain", "v2"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			log, mark := filepath.Join(dir, "log"), filepath.Join(dir, "mark")
			uri := loggerURI(t, how, log, mark)
			r := newRig(t, streams{stdout: uri, stderr: uri}, owner{app: "app-1"})
			m := marks(t, mark) // written before ready
			want := fmt.Sprintf(" args=logger,,log,%s,mark,%s id=app-1 ns=testing", log, mark)
			if len(m) != 1 || !strings.HasSuffix(m[0], want) {
				t.Errorf("%q, want one ending in %q", m, want)
			}
			exitCode(t, r.start("echo out; sleep 0.01; echo err >&2"))
			r.drain()
			b, err := os.ReadFile(log)
			if err != nil || !strings.Contains(string(b), "1:out\n") || !strings.Contains(string(b), "2:err\n") {
				t.Errorf("log: %q, %v", b, err)
			}
		})
	}
}

// requirements.md#I4
func TestALoggerForStdoutAloneAndAFileForStderr(t *testing.T) {
	dir := t.TempDir()
	log, errs := filepath.Join(dir, "log"), filepath.Join(dir, "err")
	r := newRig(t, streams{stdout: loggerURI(t, "plain", log, ""), stderr: "file://" + errs}, owner{})
	exitCode(t, r.start("echo out; echo err >&2"))
	r.drain()
	for path, want := range map[string]string{log: "1:out\n", errs: "err\n"} {
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v; want %q", path, b, err, want)
		}
	}
}

// requirements.md#I4
func TestStdinWorksBesideALogger(t *testing.T) {
	log, in := filepath.Join(t.TempDir(), "log"), mkfifo(t, "in")
	r := newRig(t, streams{stdin: in, stdout: loggerURI(t, "plain", log, "")}, owner{})
	c := r.start("cat")
	if err := os.WriteFile(in, []byte("through\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := r.io.CloseStdin(); err != nil {
		t.Fatal(err)
	}
	exitCode(t, c)
	r.drain()
	if b, err := os.ReadFile(log); err != nil || string(b) != "1:through\n" {
		t.Errorf("log: %q, %v", b, err)
	}
}

// requirements.md#I4
func TestALoggerThatIsNotReadyFailsTheOpening(t *testing.T) {
	checkFDs(t)
	for _, c := range []struct {
		how, uri string
		want     string
	}{
		{"v2-crash", "", "without writing"},
		{"never-ready", "", context.DeadlineExceeded.Error()},
		{"", "binary:///no/such/logger", "no such file"},
	} {
		uri := c.uri
		if uri == "" {
			how := strings.TrimPrefix(c.how, "v2-")
			uri = loggerURI(t, how, "/dev/null", "")
			if how != c.how {
				uri = "binary-v2" + strings.TrimPrefix(uri, "binary")
			}
		}
		limit := wait.Patience
		if c.how == "never-ready" {
			limit = time.Second
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := newOpener("testing", children).open(ctx, streams{stdout: uri, stderr: uri}, owner{})
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s%s: %v, want %q", c.how, c.uri, err, c.want)
		}
	}
}

// requirements.md#I4
func TestCloseEndsALoggerWithSIGTERM(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Join(dir, "mark")
	r := newRig(t, streams{stdout: loggerURI(t, "plain", filepath.Join(dir, "log"), mark)}, owner{})
	pid := markedPID(t, marks(t, mark)[0])
	if err := r.io.Close(); err != nil { // never begun
		t.Fatal(err)
	}
	wait.Until(t, "the logger is gone and reaped", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
}

// requirements.md#I4
func TestALoggerThatIgnoresSIGTERMIsKilledWithTheService(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Join(dir, "mark")
	r := newRig(t, streams{stdout: loggerURI(t, "deaf", filepath.Join(dir, "log"), mark)}, owner{})
	pid := markedPID(t, marks(t, mark)[0])
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = r.io.Close()
	}()
	wait.For(t, "Close, which does not wait for a deaf logger", closed)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.o.close(ctx)
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("the logger is still there: %v", err)
	}
}

// requirements.md#I4
func TestALoggerThatIsKilledHasASuccessorAndNothingIsLost(t *testing.T) {
	dir := t.TempDir()
	log, mark, in := filepath.Join(dir, "log"), filepath.Join(dir, "mark"), mkfifo(t, "in")
	r := newRig(t, streams{stdin: in, stdout: loggerURI(t, "plain", log, mark)}, owner{})
	c := r.start("echo before; read x; for i in 1 2 3; do echo after $i; done")
	wait.Until(t, "the first line is logged", func() bool {
		b, _ := os.ReadFile(log)
		return string(b) == "1:before\n"
	})
	if err := syscall.Kill(markedPID(t, marks(t, mark)[0]), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// What the dying one had read already would be lost.
	wait.Until(t, "there is a successor", func() bool { return len(marks(t, mark)) == 2 })
	if err := os.WriteFile(in, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, c); code != 0 {
		t.Errorf("exit code %d: the process was disturbed", code)
	}
	r.drain()
	if b, err := os.ReadFile(log); err != nil || string(b) != "1:before\n1:after 1\n1:after 2\n1:after 3\n" {
		t.Errorf("log: %q, %v", b, err)
	}
}

// requirements.md#I4
func TestAProcessWhoseLoggersKeepDyingIsNotStopped(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Join(dir, "mark")
	r := newRig(t, streams{stdout: loggerURI(t, "crash", filepath.Join(dir, "log"), mark)}, owner{})
	c := r.start("head -c 1000000 /dev/zero; echo $? >" + strconv.Quote(filepath.Join(dir, "status")))
	if code := exitCode(t, c); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "status")); err != nil || string(b) != "0\n" {
		t.Errorf("head ended with %q, %v", b, err)
	}
	r.drain()
	if n := len(marks(t, mark)); n < 2 || n > loggerCrashes+1 {
		t.Errorf("%d runs of the logger", n)
	}
}

// The end of the shim does not wait for the output of an app that lives on, whose logger is given up.
//
// requirements.md#N2
func TestTheShimEndsWhileOutputIsThrownAway(t *testing.T) {
	dir := t.TempDir()
	mark, in := filepath.Join(dir, "mark"), mkfifo(t, "in")
	r := newRig(t, streams{stdin: in, stdout: loggerURI(t, "crash", filepath.Join(dir, "log"), mark)}, owner{})
	c := r.start("head -c 1000000 /dev/zero; read x")
	wait.Until(t, "the loggers are given up", func() bool { return len(marks(t, mark)) == loggerCrashes+1 })
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		r.o.close(ctx)
	}()
	wait.For(t, "the end of the opener", closed)
	if r.o.watch(func() {}) {
		t.Error("another logger is watched")
	}
	if err := os.WriteFile(in, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	exitCode(t, c)
}

// requirements.md#N2
func TestTheLoggerOfAnAppThatLivesOnIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	log, mark, in := filepath.Join(dir, "log"), filepath.Join(dir, "mark"), mkfifo(t, "in")
	r := newRig(t, streams{stdin: in, stdout: loggerURI(t, "plain", log, mark)}, owner{})
	c := r.start("read x; echo late")
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	r.o.close(ctx)
	if ctx.Err() != nil {
		t.Fatal("close waited for a logger that serves")
	}
	if err := os.WriteFile(in, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	exitCode(t, c)
	wait.Until(t, "the late line is logged", func() bool {
		b, _ := os.ReadFile(log)
		return string(b) == "1:late\n"
	})
}

// The parent of a logger shows whether its shim is dead. requirements.md#D6
func TestTheLoggersOfADeadShimAreEnded(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		shim   string // on record
		ends   bool
	}{
		"one that ends by SIGTERM":   {"exec sleep 1000", "1", true},
		"one that ends by itself":    {"sleep 0.1", "1", true},
		"one of a shim that is here": {"exec sleep 1000", strconv.Itoa(os.Getpid()), false},
	} {
		t.Run(name, func(t *testing.T) {
			bundle := t.TempDir()
			child, err := children.StartThen([]string{"/bin/sh", "-c", c.script}, &os.ProcAttr{
				Sys: &syscall.SysProcAttr{Setpgid: true},
			}, func(p *proc.Child, _ proc.Exit) { forgetLogger(bundle, p.PID()) })
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = child.KillGroup()
				<-child.Done()
				if left, err := os.ReadDir(filepath.Join(bundle, loggersDir)); err != nil || len(left) > 0 {
					t.Errorf("left on record: %v, %v", left, err)
				}
			}()
			if err := recordLogger(bundle, child.PID()); err != nil {
				t.Fatal(err)
			}
			record := loggerRecord(bundle, child.PID())
			text, err := os.ReadFile(record)
			if err == nil {
				start, _, _ := strings.Cut(string(text), " ")
				err = os.WriteFile(record, []byte(start+" "+c.shim+"\n"), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := EndLoggers(t.Context(), bundle, time.Hour); err != nil {
				t.Fatal(err)
			}
			if !c.ends {
				select {
				case <-child.Done():
					t.Error("it was ended")
				default:
				}
				return
			}
			wait.For(t, "its end", child.Done())
		})
	}
	if err := EndLoggers(t.Context(), t.TempDir(), 0); err != nil {
		t.Errorf("a bundle without loggers: %v", err)
	}
}
