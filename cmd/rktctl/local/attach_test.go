package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// awaitPart waits for output that has the text somewhere.
func (s *seen) awaitPart(t *testing.T, part string) {
	t.Helper()
	wait.Observe(t, fmt.Sprintf("output has %q", part), func() (bool, string) { text := s.String(); return strings.Contains(text, part), text })
}

// attachment is an attachment in progress.
type attachment struct {
	out  seen
	in   io.WriteCloser
	end  context.CancelFunc
	code chan int
	err  error
}

// attach attaches to an app.
func (p *pod) attach(name string, endInput bool) *attachment {
	p.Helper()
	to, err := p.Attach(p.Context(), name)
	if err != nil {
		p.Fatal(err)
	}
	in, w := io.Pipe()
	ctx, end := context.WithCancel(p.Context())
	a := &attachment{in: w, end: end, code: make(chan int, 1)}
	go func() {
		defer to.Close()
		var code int
		code, a.err = to.Run(ctx, local.AttachConfig{Stdin: in, Stdout: &a.out, EndInput: endInput})
		a.code <- code
	}()
	return a
}

// Several clients read the output from when they attach, and the input waits for the next one.
func TestClientsAttachToARunningApp(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		p := b.sandbox()
		c := config("echo", `echo before; while read line; do echo "<$line>"; echo "error of $line" >&2; done; echo end; exit 6`)
		c.Stdin = true
		if err := p.Pod.Add(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Attach(t.Context(), "echo"); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("attached to an app that was not started: %v", err)
		}
		p.start("echo")
		p.awaitLog("echo", "before\n")

		first := p.attach("echo", false)
		io.WriteString(first.in, "one\n")
		first.out.awaitPart(t, "<one>\n")
		first.out.awaitPart(t, "error of one\n")
		if got := first.out.String(); strings.Contains(got, "before") {
			t.Errorf("output of before: %q", got)
		}
		first.in.Close()
		first.end()
		if <-first.code; !errors.Is(first.err, context.Canceled) {
			t.Errorf("an attachment that was left: %v", first.err)
		}
		p.expect("echo", local.Running)

		second, third := p.attach("echo", true), p.attach("echo", false)
		io.WriteString(second.in, "two\n")
		second.out.awaitPart(t, "<two>\n")
		io.WriteString(third.in, "three\n")
		third.out.awaitPart(t, "<three>\n")
		third.in.Close()
		second.in.Close()
		for _, a := range []*attachment{second, third} {
			if code := <-a.code; code != 6 || a.err != nil || !strings.Contains(a.out.String(), "<three>\n") || !strings.Contains(a.out.String(), "error of three\n") || !strings.Contains(a.out.String(), "end\n") {
				t.Errorf("%d, %v, %q", code, a.err, a.out.String())
			}
		}
		if _, err := p.Attach(t.Context(), "echo"); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("attached to an app that has ended: %v", err)
		}
	})
}

// The end of an app is not missed if it comes before the client waits for it, nor if the pod's server
// ends with the app.
func TestAnAppEndsWhileAClientAttaches(t *testing.T) {
	b := newBox(t, "native")
	for _, ends := range []bool{false, true} {
		made, err := b.Create(t.Context(), local.PodConfig{Stage1: b.stage1, EndsWithApps: ends, Apps: []local.AppConfig{
			config("web", "trap 'echo end; exit 6' TERM; echo ready; while :; do sleep 0.05; done"),
		}})
		if err != nil {
			t.Fatal(err)
		}
		p := &pod{b, made}
		p.start("web")
		p.awaitLog("web", "ready\n")
		to, err := p.Attach(t.Context(), "web")
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		if err := p.Stop(t.Context(), "web", 20*time.Second); err != nil {
			t.Fatal(err)
		}
		p.await("web", local.Exited)
		if code, err := to.Run(t.Context(), local.AttachConfig{Stdout: io.Discard}); code != 6 || err != nil {
			t.Errorf("the pod ends with its apps: %v: %d, %v", ends, code, err)
		}
	}
}

// An app without --stdin has an empty input.
func TestAnAppWithoutInputIsReadOnly(t *testing.T) {
	p := newBox(t, "native").sandbox()
	p.add("web", "cat; echo ready; exec sleep 1000")
	p.start("web")
	p.awaitLog("web", "ready\n")
	to, err := p.Attach(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	if to.Input() {
		t.Error("it has an input")
	}
	to.Close()
	if _, err := p.Attach(t.Context(), "nosuch"); !errdefs.IsNotFound(err) {
		t.Errorf("no app: %v", err)
	}
}

// A user works in an app's terminal, and leaves it.
func TestAUserAttachesATerminal(t *testing.T) {
	if _, err := exec.LookPath("script"); err != nil {
		t.Skip("needs script, which makes a terminal for a command: ", err)
	}
	b := newBox(t, "native")
	p := b.sandbox()
	c := config("shell", `while read line; do echo "<$line $(stty size)>"; done`)
	c.Stdin, c.Terminal = true, true
	if err := p.Pod.Add(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	p.start("shell")
	in, keys, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer keys.Close()
	cmd := exec.Command("script", "-qec", "stty rows 20 cols 70; rktctl attach "+p.UUID()+"; echo code $?", "/dev/null")
	cmd.Env = []string{"PATH=" + suite.bin + ":" + os.Getenv("PATH"), "RKT_DATA_DIR=" + b.DataDir, "SHELL=/bin/sh"}
	var out seen
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	wait.Observe(t, "the app's terminal has the caller's size", func() (bool, string) {
		_, _ = keys.WriteString("a\r")
		got := out.String()
		return strings.Contains(got, "<a 20 70>"), got
	})
	_, _ = keys.WriteString("b\x10c\r") // one key alone is the app's
	out.awaitPart(t, "<b\x10c 20 70>")
	_, _ = keys.WriteString("\x10\x11")
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "code 0") {
		t.Errorf("%v: %q", err, out.String())
	}
	p.expect("shell", local.Running)
	if _, err := os.Stat(filepath.Join(b.DataDir, "local", p.UUID(), "apps/shell/stdin")); err != nil {
		t.Error(err)
	}
}
