package rktfront_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a terminal with its user's end, the master.
type terminal struct {
	t             *testing.T
	master, slave *os.File

	mu   sync.Mutex
	seen bytes.Buffer
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	must(t, err)
	conn, err := master.SyscallConn()
	must(t, err)
	var n int
	must(t, conn.Control(func(fd uintptr) {
		must(t, unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0))
		n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		must(t, err)
	}))
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	x := &terminal{t: t, master: master, slave: slave}
	x.resize(24, 80)
	read := make(chan struct{})
	go func() {
		defer close(read)
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			if err != nil {
				return
			}
			x.mu.Lock()
			x.seen.Write(buffer[:n])
			x.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		slave.Close()
		master.Close()
		<-read
	})
	return x
}

func (x *terminal) resize(rows, columns uint16) {
	x.t.Helper()
	must(x.t, unix.IoctlSetWinsize(int(x.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}))
}

func (x *terminal) mode() unix.Termios {
	x.t.Helper()
	mode, err := unix.IoctlGetTermios(int(x.slave.Fd()), unix.TCGETS)
	must(x.t, err)
	return *mode
}

// on has a program execute on the terminal, in a session that it controls.
func (x *terminal) on(cmd *exec.Cmd) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = x.slave, x.slave, x.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
}

func (x *terminal) types(text string) {
	x.t.Helper()
	_, err := x.master.WriteString(text)
	must(x.t, err)
}

func (x *terminal) shows() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.seen.String()
}

// conversation is a program on a terminal of its own, which prints what it sees and
// reads.
const conversation = `trap 'echo large: $(busybox stty size)' WINCH; trap 'echo interrupted; exit 9' INT
	echo "size: $(busybox stty size)"; test -t 0 && test -t 1 && test -t 2 && busybox tty; echo "mine" >/dev/tty
	read line; echo "read $line"; while :; do busybox sleep 0.1; done`

// converses plays the user at the terminal until the conversation is over.
func (x *terminal) converses(p *rktPod) {
	p.t.Helper()
	sees := func(what string) {
		p.t.Helper()
		p.await("the terminal shows "+what+", and it shows "+x.shows(), func() bool { return regexp.MustCompile(what).MatchString(x.shows()) })
	}
	sees(`size: 24 80\r\n/dev/(pts/\d+|console)\r\nmine\r\n`)
	x.types("a line\r")
	sees(`a line\r\nread a line\r\n`) // its echo is the program's terminal's
	x.resize(31, 97)
	sees(`large: 31 97\r\n`)
	x.types("\x03")
	sees(`interrupted\r\n`)
}

func TestAnInteractiveAppHasATerminal(t *testing.T) {
	eachImage(t, func(t *testing.T, p *rktPod) {
		p.app("web", shell(conversation), nil)
		x := newTerminal(t)
		before := x.mode()
		p.startOn(x, "--net=host", "--interactive")
		x.converses(p)
		p.ends(9)
		if x.mode() != before {
			t.Errorf("the terminal is not as it was: %+v, was %+v", x.mode(), before)
		}
		if left, _ := filepath.Glob(filepath.Join(p.dir, "stage1/rootfs/rkt/console*")); len(left) > 0 {
			t.Errorf("sockets are left: %v", left)
		}
	})
}

func TestAllThatAnInteractiveAppHasWrittenIsShown(t *testing.T) {
	eachImage(t, func(t *testing.T, p *rktPod) {
		p.app("web", shell(`i=0; while test $i -lt 2000; do echo "line $i"; i=$((i+1)); done; echo last`), nil)
		x := newTerminal(t)
		p.startOn(x, "--net=host", "--interactive")
		p.ends(0)
		p.await("all is shown", func() bool { return strings.HasSuffix(x.shows(), "last\r\n") })
		if n := strings.Count(x.shows(), "line "); n != 2000 {
			t.Errorf("%d of 2000 lines are shown", n)
		}
	})
}

func TestWhatIsEnteredFromATerminalHasOne(t *testing.T) {
	eachImage(t, func(t *testing.T, p *rktPod) {
		p.app("web", shell(`exec busybox sleep 1000`), nil)
		p.start("--net=host")
		p.await("the app runs", func() bool { _, err := os.Stat(filepath.Join(p.dir, "pid")); return err == nil })
		pid := strings.TrimSpace(p.file("pid"))
		p.await("the process of the only app is in pid", func() bool {
			args, err := os.ReadFile("/proc/" + pid + "/cmdline")
			return err == nil && string(args) == "busybox\x00sleep\x001000\x00"
		})
		x := newTerminal(t)
		before := x.mode()
		cmd := p.command("enter", "--pid="+pid, "--appname=web", "--", "sh", "-c", conversation)
		x.on(cmd)
		must(t, cmd.Start())
		x.converses(p)
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 9 || x.mode() != before {
			t.Errorf("exit code %d; the terminal's mode is %+v, was %+v", cmd.ProcessState.ExitCode(), x.mode(), before)
		}
		p.expect(0, "", "stop", podID)
		_ = p.run.Wait()
	})
}

func TestAHungUpTerminalEndsItsProgram(t *testing.T) {
	eachImage(t, func(t *testing.T, p *rktPod) {
		p.app("web", shell(`echo up; while read line; do :; done; exit 4`), nil)
		x := newTerminal(t)
		p.startOn(x, "--net=host", "--interactive")
		p.await("the app runs", func() bool { return strings.Contains(x.shows(), "up") })
		x.slave.Close()
		x.master.Close()
		_ = p.run.Wait()
		if p.run.ProcessState.Success() {
			t.Error("run ends well")
		}
		p.nothingRuns()
	})
}

func TestWithoutATerminalAnInteractiveAppHasTheStreamsOfRun(t *testing.T) {
	eachImage(t, func(t *testing.T, p *rktPod) {
		p.app("web", shell(`test -t 0 || echo "no terminal"; exit 3`), nil)
		p.start("--net=host", "--interactive")
		p.ends(3)
		if p.out.String() != "no terminal\n" {
			t.Errorf("the app says %q", p.out.String())
		}
	})
}
