package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/proc/stream"
)

// openTerminal returns a terminal, its output, and its other end.
func openTerminal(t *testing.T) (*stream.Terminal, <-chan string, *os.File) {
	t.Helper()
	master, slave, err := proc.OpenTerminal(unix.O_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	term := &stream.Terminal{Master: os.NewFile(uintptr(master), "master")}
	output := make(chan string, 8)
	tty := os.NewFile(uintptr(slave), "slave")
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(output)
		buf := make([]byte, 4096)
		for {
			n, err := term.Read(buf)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					output <- err.Error()
				}
				return
			}
			output <- string(buf[:n])
		}
	}()
	t.Cleanup(func() { term.End(); tty.Close(); <-done; term.Master.Close() })
	return term, output, tty
}

func TestATerminalThatIsReopenedKeepsItsStream(t *testing.T) {
	term, output, tty := openTerminal(t)
	fmt.Fprint(tty, "first")
	if got := wait.For(t, "the first output", output); got != "first" {
		t.Fatalf("the output is %q", got)
	}
	tty.Close()
	wait.Blocked(t, "stream.(*Terminal).Read", 1) // it has seen EIO
	var again int
	err := proc.Control(term.Master, func(master int) (err error) {
		again, err = proc.Slave(master)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	tty = os.NewFile(uintptr(again), "slave")
	fmt.Fprint(tty, "second")
	if got := wait.For(t, "the second output", output); got != "second" {
		t.Errorf("the output is %q", got)
	}
	tty.Close()
	term.End()
	if got := wait.For(t, "the end", output); got != "" {
		t.Errorf("after the end of the process comes %q", got)
	}
}

func TestATerminalEndsWithItsProcessAlthoughABackgroundJobHasItOpen(t *testing.T) {
	term, output, tty := openTerminal(t)
	sh := exec.Command("sh", "-c", "echo last; sleep 60 & exit 0")
	sh.Stdin, sh.Stdout, sh.Stderr = tty, tty, tty
	sh.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := sh.Run(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(-sh.Process.Pid, unix.SIGKILL) })
	term.End()
	got := ""
	for s := range output {
		got += s
	}
	if got != "last\r\n" {
		t.Errorf("the output is %q", got)
	}
}

func TestOnlyWantOfResourcesAndClientsThatHaveGoneAreTemporary(t *testing.T) {
	for err, want := range map[error]bool{
		&net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", unix.EMFILE)}: true,
		unix.ENFILE: true, unix.ECONNABORTED: true, unix.ENOBUFS: true, unix.ENOMEM: true, unix.ENOSPC: true,
		net.ErrClosed: false, unix.EINVAL: false, io.EOF: false,
	} {
		if got := stream.Temporary(err); got != want {
			t.Errorf("%v: temporary is %t", err, got)
		}
	}
	if stream.Temporary(nil) {
		t.Error("success is temporary")
	}
}

func TestThePausesGrowToASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b stream.Backoff
		first := time.Now()
		if err := b.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if d := time.Since(first); d != 5*time.Millisecond {
			t.Errorf("the first pause is %s", d)
		}
		for range 10 {
			_ = b.Wait(t.Context())
		}
		last := time.Now()
		_ = b.Wait(t.Context())
		if d := time.Since(last); d != time.Second {
			t.Errorf("the last pause is %s", d)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		cancel(gone)
		if err := b.Wait(ctx); err != gone {
			t.Errorf("the wait ends with %v", err)
		}
	})
}
