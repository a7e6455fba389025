package cri

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

func streams() section {
	return section{"Streams and hooks", []feature{
		{"logs: stdout and stderr, long lines, no newline at the end", logs},
		{"log rotation (ReopenContainerLog)", logRotation},
		{"exec sync: output, code", execSync},
		{"exec sync: timeout", execTimeout},
		{"exec sync: much output", execMuch},
		{"exec: stdin, stdout, stderr and code", execStreams},
		{"exec: 100 MiB of stdin, stdout or stderr closed", execMuchInput},
		{"exec with a terminal, and its size", execTerminal},
		{"exec is left, and what it started is not in the way", execLeft},
		{"attach: stdin, stdout and stderr", attach},
		{"attach with a terminal, and its size", attachTerminal},
		{"attach again, after a detach", attachAgain},
		{"attach again, stdout and stderr closed", attachInputAgain},
		{"stdinOnce", stdinOnce},
		{"port-forward", forwardPort},
		{"port-forward of a pod in the node's network", forwardHostPort},
		{"termination messages", terminationMessage},
		{"post-start and pre-stop hooks by exec", hooksByExec},
		{"liveness by exec, many times", livenessByExec},
	}}
}

func logs(t *testing.T, c *column) {
	p := c.pod(t)
	one := p.run("a", sh("echo out; echo err >&2; head -c 40000 /dev/zero | tr '\\0' x; echo; printf end"))
	one.expectExit(0)
	out := one.stream("stdout")
	if want := "out\n" + strings.Repeat("x", 40000) + "\nend"; strings.TrimSuffix(out, "\n") != want {
		t.Errorf("stdout has %d bytes, want %d", len(out), len(want))
	}
	if errout := one.stream("stderr"); errout != "err\n" {
		t.Errorf("stderr: %q", errout)
	}
}

func logRotation(t *testing.T, c *column) {
	p := c.pod(t)
	one := p.run("a", sh("i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done"))
	one.awaitLog("3\n")
	file := filepath.Join(p.logs, "a.log")
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	if err := c.runtime.ReopenContainerLog(testContext(t), one.id); err != nil {
		t.Fatalf("reopen: %v", err)
	}
	wait.Observe(t, "the new file is written", func() (bool, string) { return one.log() != "", "" })
	one.stop(0)
	var all []string
	all = append(all, lines(readLog(t, file+".1", ""))...)
	all = append(all, lines(one.log())...)
	for i, l := range all {
		if l != itoa(i+1) {
			t.Fatalf("line %d is %q: something is lost", i+1, l)
		}
	}
	if err := c.runtime.ReopenContainerLog(testContext(t), one.id); err == nil {
		t.Error("the log of a stopped container was opened again")
	}
}

func execSync(t *testing.T, c *column) {
	one := c.pod(t).run("a", forever())
	code, out, errout := one.execCode("sh", "-c", "echo out; echo err >&2; exit 7")
	if code != 7 || out != "out\n" || errout != "err\n" {
		t.Errorf("code %d, %q, %q", code, out, errout)
	}
	_, _, err := c.runtime.ExecSync(testContext(t), one.id, []string{"no-such-program"}, time.Minute)
	if err == nil || !strings.Contains(err.Error(), "executable file not found") {
		t.Errorf("exec of nothing: %v", err)
	}
	one.expectRunning()
}

func execTimeout(t *testing.T, c *column) {
	one := c.pod(t).run("a", forever())
	_, _, err := c.runtime.ExecSync(testContext(t), one.id, []string{"sleep", "4242"}, time.Second)
	if err == nil || !strings.Contains(err.Error(), "timed out") {
		t.Errorf("exec: %v", err)
	}
	wait.Observe(t, "it is killed", func() (bool, string) {
		out := one.exec("ps", "-o", "args")
		return !strings.Contains(out, "sleep 4242"), out
	})
	one.expectRunning()
}

func execMuch(t *testing.T, c *column) {
	one := c.pod(t).run("a", forever())
	if out := one.exec("/bin/testprog", "bytes", "4000000"); len(out) != 4000000 {
		t.Errorf("%d bytes", len(out))
	}
}

// stream is a connection of the kubelet's streaming protocol to a URL.
func stream(t *testing.T, address string, o remotecommand.StreamOptions) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(testContext(t), 2*wait.Patience)
	defer cancel()
	return streamUntil(ctx, t, address, o)
}

func streamUntil(ctx context.Context, t *testing.T, address string, o remotecommand.StreamOptions) error {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	executor, err := remotecommand.NewSPDYExecutor(&restclient.Config{}, "POST", u)
	if err != nil {
		t.Fatal(err)
	}
	return executor.StreamWithContext(ctx, o)
}

// expectCode compares the exit code that a stream reports for its command.
func expectCode(t *testing.T, err error, code int) {
	t.Helper()
	if exit, ok := errors.AsType[utilexec.CodeExitError](err); !ok || exit.ExitStatus() != code {
		t.Errorf("it ended with %v, want the code %d", err, code)
	}
}

func (c *container) execURL(r *runtimeapi.ExecRequest) string {
	c.t.Helper()
	r.ContainerId = c.id
	answer, err := c.runtime.Exec(testContext(c.t), r)
	if err != nil {
		c.t.Fatalf("exec %q: %v", r.GetCmd(), err)
	}
	return answer.GetUrl()
}

func (c *container) attachURL(r *runtimeapi.AttachRequest) string {
	c.t.Helper()
	r.ContainerId = c.id
	answer, err := c.runtime.Attach(testContext(c.t), r)
	if err != nil {
		c.t.Fatalf("attach: %v", err)
	}
	return answer.GetUrl()
}

func execStreams(t *testing.T, c *column) {
	one := c.pod(t).run("a", forever())
	var out, errout bytes.Buffer
	address := one.execURL(&runtimeapi.ExecRequest{Cmd: sh("cat; echo err >&2; exit 5"), Stdin: true, Stdout: true, Stderr: true})
	err := stream(t, address, remotecommand.StreamOptions{Stdin: strings.NewReader("hello\n"), Stdout: &out, Stderr: &errout})
	expectCode(t, err, 5)
	if out.String() != "hello\n" || errout.String() != "err\n" {
		t.Errorf("%q, %q", &out, &errout)
	}
}

// cutInput is the reason why runc's handler loses input.
const cutInput = "runc's shim closes an output as soon as the program does, and then containerd does not read the input any more"

// execMuchInput copies a large file into a container, as "kubectl exec -i" does. The program has its outputs, or one of
// them, turned to a file, so that they end before the input does.
func execMuchInput(t *testing.T, c *column) {
	if c.isRunc() {
		c.remark(cutInput)
		return
	}
	const size = 100 << 20
	one := c.pod(t).run("a", forever())
	times := 3
	if os.Getenv("RKT_TEST_LONG") != "" {
		times = 20
	}
	programs := append(slices.Repeat([]string{"exec >/tmp/n; exec wc -c"}, times),
		"exec 2>&-; wc -c >/tmp/n", "exec 2>&-; exec >/tmp/n; exec wc -c")
	for i, program := range programs {
		address := one.execURL(&runtimeapi.ExecRequest{Cmd: sh(program), Stdin: true, Stdout: true, Stderr: true})
		input := io.LimitReader(zeros{}, size)
		if err := stream(t, address, remotecommand.StreamOptions{Stdin: input, Stdout: io.Discard, Stderr: io.Discard}); err != nil {
			t.Errorf("run %d of %q: %v", i, program, err)
		}
		if n := strings.TrimSpace(one.exec("cat", "/tmp/n")); n != itoa(size) {
			t.Errorf("run %d of %q: %s of %d bytes have arrived", i, program, n, size)
		}
	}
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// sizes sends sizes of a terminal's window.
type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &size
}

// terminal is the terminal of a user who types into stdin.
type terminal struct {
	t     *testing.T
	out   lockedBuffer
	typed *io.PipeWriter
	stdin *io.PipeReader
	sizes sizes
	ended chan error
}

func openTerminal(t *testing.T, address string) *terminal {
	t.Helper()
	term := &terminal{t: t, sizes: make(sizes, 4), ended: make(chan error, 1)}
	term.stdin, term.typed = io.Pipe()
	term.sizes <- remotecommand.TerminalSize{Width: 101, Height: 31}
	go func() {
		term.ended <- stream(t, address, remotecommand.StreamOptions{Stdin: term.stdin, Stdout: &term.out, Tty: true, TerminalSizeQueue: term.sizes})
	}()
	return term
}

func (term *terminal) enter(line string) {
	term.t.Helper()
	if _, err := io.WriteString(term.typed, line+"\n"); err != nil {
		term.t.Fatal(err)
	}
}

// end waits for the end of the stream.
func (term *terminal) end() error {
	term.t.Helper()
	select {
	case err := <-term.ended:
		close(term.sizes)
		return err
	case <-time.After(wait.Patience):
		term.t.Errorf("the stream does not end; the terminal shows:\n%s", term.out.String())
		return nil
	}
}

func execTerminal(t *testing.T, c *column) {
	one := c.pod(t).run("a", forever())
	term := openTerminal(t, one.execURL(&runtimeapi.ExecRequest{Cmd: []string{"sh"}, Tty: true, Stdin: true, Stdout: true}))
	wait.Observe(t, "the size is known", func() (bool, string) {
		term.enter("stty size")
		return strings.Contains(term.out.String(), "31 101"), term.out.String()
	})
	term.sizes <- remotecommand.TerminalSize{Width: 66, Height: 22}
	wait.Observe(t, "the new size is known", func() (bool, string) {
		term.enter("stty size")
		return strings.Contains(term.out.String(), "22 66"), term.out.String()
	})
	term.enter("exit 4")
	expectCode(t, term.end(), 4)
}

func execLeft(t *testing.T, c *column) {
	one := c.pod(t).run("a", forever())
	// A process that an exec leaves holds its stdout. It does not delay other execs.
	if code, out, _ := one.execCode("sh", "-c", "sleep 4 & echo left"); code != 0 || out != "left\n" {
		t.Errorf("code %d, %q", code, out)
	}
	if out := one.exec("echo", "next"); out != "next\n" {
		t.Errorf("%q", out)
	}
}

func interactive(tty bool) func(*runtimeapi.ContainerConfig) {
	return func(config *runtimeapi.ContainerConfig) { config.Stdin, config.Tty = true, tty }
}

func attach(t *testing.T, c *column) {
	one := c.pod(t).run("a", sh("while read l; do echo out $l; echo err $l >&2; done"), interactive(false))
	var out, errout lockedBuffer
	stdin, typed := io.Pipe()
	ended := make(chan error, 1)
	address := one.attachURL(&runtimeapi.AttachRequest{Stdin: true, Stdout: true, Stderr: true})
	go func() {
		ended <- stream(t, address, remotecommand.StreamOptions{Stdin: stdin, Stdout: &out, Stderr: &errout})
	}()
	if _, err := io.WriteString(typed, "hello\n"); err != nil {
		t.Fatal(err)
	}
	wait.Observe(t, "both streams are attached", func() (bool, string) {
		return out.String() == "out hello\n" && errout.String() == "err hello\n", out.String() + errout.String()
	})
	one.stop(0)
	select {
	case <-ended:
	case <-time.After(wait.Patience):
		t.Error("the stream does not end with the container")
	}
	one.awaitLog("out hello\n")
}

func attachTerminal(t *testing.T, c *column) {
	one := c.pod(t).run("a", []string{"sh"}, interactive(true))
	term := openTerminal(t, one.attachURL(&runtimeapi.AttachRequest{Stdin: true, Stdout: true, Tty: true}))
	wait.Observe(t, "the size is known", func() (bool, string) {
		term.enter("stty size")
		return strings.Contains(term.out.String(), "31 101"), term.out.String()
	})
	term.enter("exit 6")
	term.end()
	one.expectExit(6)
}

func attachAgain(t *testing.T, c *column) {
	one := c.pod(t).run("a", []string{"cat"}, interactive(false))
	for _, text := range []string{"first", "second"} {
		var out lockedBuffer
		stdin, typed := io.Pipe()
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(testContext(t))
		address := one.attachURL(&runtimeapi.AttachRequest{Stdin: true, Stdout: true, Stderr: true})
		go func() {
			ended <- streamUntil(ctx, t, address, remotecommand.StreamOptions{Stdin: stdin, Stdout: &out, Stderr: io.Discard})
		}()
		if _, err := io.WriteString(typed, text+"\n"); err != nil {
			t.Fatal(err)
		}
		wait.Observe(t, "it answers", func() (bool, string) { return out.String() == text+"\n", out.String() })
		cancel()
		<-ended
		one.expectRunning()
	}
}

// attachInputAgain attaches twice to a program that has closed its outputs.
func attachInputAgain(t *testing.T, c *column) {
	if c.isRunc() {
		c.remark(cutInput)
		return
	}
	one := c.pod(t).run("a", sh("exec >&- 2>&-; while read l; do echo $l >>/tmp/lines; done"), interactive(false))
	want := ""
	for _, text := range []string{"first", "second"} {
		stdin, typed := io.Pipe()
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(testContext(t))
		address := one.attachURL(&runtimeapi.AttachRequest{Stdin: true, Stdout: true, Stderr: true})
		go func() {
			ended <- streamUntil(ctx, t, address, remotecommand.StreamOptions{Stdin: stdin, Stdout: io.Discard, Stderr: io.Discard})
		}()
		if _, err := io.WriteString(typed, text+"\n"); err != nil {
			t.Fatal(err)
		}
		want += text + "\n"
		wait.Observe(t, "the input has arrived", func() (bool, string) {
			_, got, _ := one.execCode("cat", "/tmp/lines")
			return got == want, got
		})
		select {
		case err := <-ended:
			t.Errorf("the stream has ended before the container: %v", err)
			ended <- nil
		default:
		}
		cancel()
		<-ended
		one.expectRunning()
	}
}

func stdinOnce(t *testing.T, c *column) {
	one := c.pod(t).run("a", sh("cat; echo end of file"), interactive(false), func(config *runtimeapi.ContainerConfig) { config.StdinOnce = true })
	var out lockedBuffer
	address := one.attachURL(&runtimeapi.AttachRequest{Stdin: true, Stdout: true, Stderr: true})
	if err := stream(t, address, remotecommand.StreamOptions{Stdin: strings.NewReader("hello\n"), Stdout: &out, Stderr: io.Discard}); err != nil {
		t.Errorf("attach: %v", err)
	}
	one.expectExit(0)
	if l := one.log(); l != "hello\nend of file\n" {
		t.Errorf("it wrote %q", l)
	}
}

func terminationMessage(t *testing.T, c *column) {
	p := c.pod(t)
	file := filepath.Join(t.TempDir(), "message")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	one := p.run("a", sh("echo last words >/dev/termination-log; exit 1"), mounted(&runtimeapi.Mount{HostPath: file, ContainerPath: "/dev/termination-log"}))
	one.expectExit(1)
	if b, err := os.ReadFile(file); err != nil || string(b) != "last words\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// The kubelet runs hooks itself: it executes them right after StartContainer, and right before
// StopContainer.
func hooksByExec(t *testing.T, c *column) {
	p := c.pod(t)
	v := volume(t, p)
	one := p.run("a", sh("trap 'cat /volume/pre-stop; exit 0' TERM; while :; do sleep 1000 & wait $!; done"), mounted(v))
	one.exec("sh", "-c", "echo started >/volume/post-start")
	one.exec("sh", "-c", "echo stopping >/volume/pre-stop")
	one.stop(30)
	one.expectExit(0)
	if l := one.log(); l != "stopping\n" {
		t.Errorf("it wrote %q", l)
	}
	if code, _, err := execStopped(t, one); err == nil {
		t.Errorf("an exec in a stopped container returned %d", code)
	}
}

func execStopped(t *testing.T, c *container) (code int, out string, err error) {
	t.Helper()
	stdout, _, err := c.runtime.ExecSync(testContext(t), c.id, []string{"true"}, time.Minute)
	return 0, string(stdout), err
}

func livenessByExec(t *testing.T, c *column) {
	one := c.pod(t).run("a", sh("touch /tmp/healthy; exec sleep 1000"))
	wait.Observe(t, "it is healthy", func() (bool, string) {
		code, _, errout := one.execCode("cat", "/tmp/healthy")
		return code == 0, errout
	})
	for range 20 {
		one.exec("cat", "/tmp/healthy")
	}
	one.exec("rm", "/tmp/healthy")
	if code, _, _ := one.execCode("cat", "/tmp/healthy"); code != 1 {
		t.Errorf("exit code %d of what is ill", code)
	}
}
