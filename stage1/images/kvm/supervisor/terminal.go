package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// terminal is the pty of the host for a terminal of the machine. It is raw: only the terminal
// in the machine interprets control characters.
type terminal struct {
	master, slave *os.File
	own           *os.File // the slave, for the supervisor
	// The proxy writes a byte to report when the size has changed.
	changed, report *os.File
}

func newTerminal(r *abi.Request) (*terminal, error) {
	master, slave, err := proc.OpenTerminal(0)
	if err != nil {
		return nil, err
	}
	t := &terminal{master: os.NewFile(uintptr(master), "master"), slave: os.NewFile(uintptr(slave), "slave")}
	if _, err = proc.MakeRaw(slave); err == nil {
		err = setSize(master, r)
	}
	if err == nil {
		t.own, err = proc.Duplicate(t.slave)
	}
	if err == nil {
		t.changed, t.report, err = os.Pipe()
	}
	if err != nil {
		t.close()
		t.own.Close()
		return nil, err
	}
	return t, nil
}

// setSize sets the size that the process asks for.
func setSize(master int, r *abi.Request) error {
	var p *specs.Process
	if r.Entrypoint == abi.Enter {
		if err := json.Unmarshal(r.Process, &p); err != nil {
			return fmt.Errorf("the exec's process: %w", err)
		}
	} else {
		var spec specs.Spec
		if err := json.Unmarshal(r.Spec, &spec); err != nil {
			return fmt.Errorf("the app's spec: %w", err)
		}
		p = spec.Process
	}
	if p == nil || p.ConsoleSize == nil {
		return nil
	}
	return unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(p.ConsoleSize.Height), Col: uint16(p.ConsoleSize.Width)})
}

// take returns the supervisor's file of the terminal, which the caller closes.
func (t *terminal) take() *os.File { return t.own }

// sizes returns the pipe of the proxy's reports, which the caller closes.
func (t *terminal) sizes() *os.File {
	f := t.changed
	t.changed = nil
	return f
}

// close closes the files that others have copies of.
func (t *terminal) close() {
	for _, f := range []*os.File{t.master, t.slave, t.changed, t.report} {
		f.Close()
	}
}

// sendTime is how long the listener of the console socket may take to read.
const sendTime = 10 * time.Second

// send sends the master to the listener of the console socket.
func (t *terminal) send(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(int64(sendTime))
	if err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err == nil {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = unix.Sendmsg(fd, []byte("console"), unix.UnixRights(int(t.master.Fd())), nil, unix.MSG_NOSIGNAL)
	}
	if err != nil {
		return fmt.Errorf("send the console to %s: %w", path, err)
	}
	return nil
}

// followSize tells the agent the size of the terminal at each report of the proxy. It returns
// when the proxy has ended.
func (p *process) followSize(changed *os.File) {
	defer changed.Close()
	buf := make([]byte, 64)
	for {
		if _, err := changed.Read(buf); err == io.EOF || err != nil {
			return
		}
		var size *unix.Winsize
		err := proc.Control(p.files[0], func(fd int) (err error) {
			size, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
			return err
		})
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_, err = p.s.ask(ctx, channel.Header{Resize: &channel.Resize{App: p.app.name, Exec: p.exec, Width: size.Col, Height: size.Row}}, nil)
		cancel()
		if err != nil && !p.hasEnded() {
			fmt.Fprintf(p.s.Log, "resize the terminal of %s: %v\n", p, err)
		}
	}
}
