package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// Main runs a launcher. If it succeeds, it does not return. If it fails, it sends the
// reason to the Control and returns the exit code.
func Main() int {
	// Give signals the effect that they will have on the executed program.
	signal.Reset()
	// Namespaces belong to a thread, and the thread that enters them must execute the
	// program.
	runtime.LockOSThread()
	unix.CloseOnExec(ControlFD)
	for {
		o, files, err := receive(ControlFD)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				reply(err)
			}
			return 1
		}
		switch {
		case o.Join != nil:
			if err := o.Join.do(files); err != nil {
				reply(err)
				return 1
			}
			reply(nil)
		case o.Exec != nil:
			reply(o.Exec.do())
			return 1
		}
	}
}

// reply sends "+" for success, else the text of an error.
func reply(err error) {
	text := "+"
	if err != nil {
		text = err.Error()
	}
	_, _ = unix.Write(ControlFD, []byte(text+"\n"))
}

func (j *Join) do(files []int) error {
	for _, dir := range j.Cgroups {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("enter the cgroup: %w", err)
		}
	}
	if j.Unified != "" && len(files) > 0 {
		last := len(files) - 1
		if _, err := unix.Write(files[last], []byte("0")); err != nil {
			return fmt.Errorf("enter the cgroup %s: %w", j.Unified, err)
		}
		_ = unix.Close(files[last])
		files = files[:last]
	}
	if err := j.enterNetwork(); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	for to, from := range files {
		if err := unix.Dup3(from, to, 0); err != nil {
			return fmt.Errorf("streams: %w", err)
		}
		_ = unix.Close(from)
	}
	if j.Terminal {
		if err := unix.IoctlSetInt(0, unix.TIOCSCTTY, 0); err != nil {
			return fmt.Errorf("controlling terminal: %w", err)
		}
	}
	return nil
}

func (j *Join) enterNetwork() error {
	switch j.Network {
	case "":
		return nil
	case NewNamespace:
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return raiseLoopback()
	}
	fd, err := unix.Open(j.Network, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", j.Network, err)
	}
	defer unix.Close(fd)
	return unix.Setns(fd, unix.CLONE_NEWNET)
}

// raiseLoopback brings up the loopback interface of a new namespace.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

func (e *Exec) do() error {
	if len(e.Argv) == 0 {
		return errors.New("no program given")
	}
	return os.NewSyscallError("execve", unix.Exec(e.Argv[0], e.Argv, e.Env))
}
