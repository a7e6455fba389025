package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

var appsTerminal = processID{"app", ""}

// terminal carries the terminal of an app. It returns what the host reads, the program's end of the terminal, and its path.
func terminal(t *testing.T) (all *terminals, sent <-chan string, tty *os.File, path string) {
	t.Helper()
	host, guest := connected(t)
	fd, slave, err := proc.OpenTerminal(0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	master := os.NewFile(uintptr(fd), "master")
	all = &terminals{}
	err = all.keep(&abi.Request{App: appsTerminal.app}, master)
	master.Close()
	if err != nil {
		t.Fatal(err)
	}
	tty = os.NewFile(uintptr(slave), "tty")
	t.Cleanup(func() { tty.Close(); all.endAll(appsTerminal.app) })
	all.carry(appsTerminal, all.of(appsTerminal), guest)
	return all, output(host), tty, fmt.Sprintf("/dev/pts/%d", number)
}

// A daemon turns its streams away from its terminal, and a getty opens its terminal again: until then, no process
// has it open. If the agent closed it, the kernel would send SIGHUP.
func TestAProgramMayCloseItsTerminalAndOpenItAgain(t *testing.T) {
	_, sent, tty, path := terminal(t)
	turned, release, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer turned.Close()
	daemon := exec.Command("sh", "-c", "exec </dev/null >/dev/null 2>&1; echo turned >&4; read line <&3")
	daemon.Stdin, daemon.Stdout, daemon.Stderr = tty, tty, tty
	hold, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	daemon.ExtraFiles = []*os.File{hold, release}
	daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	hold.Close()
	release.Close()
	if _, err := turned.Read(make([]byte, 16)); err != nil {
		t.Errorf("the daemon: %v", err)
	}
	wait.Blocked(t, "stream.(*Terminal).Read", 1)
	again, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Errorf("open the terminal again: %v", err)
	} else {
		fmt.Fprint(again, "back")
		if got := wait.For(t, "the output", sent); got != "back" {
			t.Errorf("the host reads %q", got)
		}
		again.Close()
	}
	fmt.Fprintln(end)
	if err := daemon.Wait(); err != nil {
		t.Errorf("the daemon has ended: %v", err)
	}
}

func TestATerminalEndsWithItsProcessAlthoughAJobHasItOpen(t *testing.T) {
	all, sent, tty, _ := terminal(t)
	fmt.Fprint(tty, "last")
	all.end(appsTerminal)
	got := ""
	for s := range sent {
		got += s
	}
	if got != "last" {
		t.Errorf("the host reads %q", got)
	}
	wait.Until(t, "the terminal is forgotten", func() bool { return all.of(appsTerminal) == nil })
	if err := all.resize(&channel.Resize{App: "app", Width: 80, Height: 25}); err != nil {
		t.Errorf("resize a terminal that has ended: %v", err)
	}
}

func TestATerminalOfARemovedAppEnds(t *testing.T) {
	all, sent, _, _ := terminal(t)
	all.endAll("other")
	if all.of(appsTerminal) == nil {
		t.Error("it ended with another app")
	}
	all.endAll(appsTerminal.app)
	if got := wait.For(t, "the end", sent); got != "" {
		t.Errorf("the host reads %q", got)
	}
}

func TestATerminalHasTheSizeOfTheHosts(t *testing.T) {
	all, _, tty, _ := terminal(t)
	if err := all.resize(&channel.Resize{App: "app", Width: 132, Height: 43}); err != nil {
		t.Fatal(err)
	}
	size, err := unix.IoctlGetWinsize(int(tty.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col != 132 || size.Row != 43 {
		t.Errorf("the size is %+v, %v", size, err)
	}
}
