package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/podmanifest"
)

// childArgument makes this program run as the process of an exec.
const childArgument = "rkt-fly-child"

// ociProcess has the fields of RKT_PROCESS that this program uses.
type ociProcess struct {
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Cwd  string   `json:"cwd"`
	User struct {
		UID    int   `json:"uid"`
		GID    int   `json:"gid"`
		Groups []int `json:"additionalGids"`
	} `json:"user"`
	NoNewPrivileges bool `json:"noNewPrivileges"`
	OOMScoreAdj     *int `json:"oomScoreAdj"`
	ConsoleSize     *struct {
		Height uint16 `json:"height"`
		Width  uint16 `json:"width"`
	} `json:"consoleSize"`
}

// enter executes a further program in the app's root. In a call of version 6 it becomes the
// program. In a call of version 7 it makes a process and waits for it.
func enter(args []string) error {
	pid, name, command, err := parseEnter(args)
	if err != nil {
		return err
	}
	root := fmt.Sprintf("/proc/%d/root", pid)
	if _, err := os.Stat(root); err != nil {
		return &failure{exitGone, fmt.Sprintf("the app's process %d has gone", pid)}
	}
	if os.Getenv("RKT_PROCESS") != "" {
		return spawn(root)
	}
	return enterAsApp(root, name, command)
}

func parseEnter(args []string) (pid int, name string, command []string, err error) {
	for i, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "--pid":
			if pid, err = strconv.Atoi(value); err != nil || pid <= 0 {
				return 0, "", nil, misused("enter: %s is not a pid", arg)
			}
		case "--appname":
			name = value
		case "--":
			if command = args[i+1:]; pid == 0 || len(command) == 0 {
				return 0, "", nil, misused("usage: enter --pid=PID --appname=APP -- COMMAND")
			}
			return pid, name, command, nil
		default:
			return 0, "", nil, misused("enter: unknown argument %s", arg)
		}
	}
	return 0, "", nil, misused("enter: nothing to execute")
}

// enterAsApp executes a command with the app's user and environment.
func enterAsApp(root, name string, command []string) error {
	_, a, err := readPod()
	if err != nil {
		return err
	}
	p, err := programOf(a.App, root)
	if err != nil {
		return err
	}
	p.args, p.cwd = command, "/"
	if p.env, err = podmanifest.EnterEnv(name); err != nil {
		return err
	}
	return p.become(root, nil)
}

// childFD is the descriptor to which the child of an exec writes an error. A successful
// exec closes it.
const childFD = 3

// spawn runs an exec of version 7. This process ends in the same way as the exec's.
func spawn(root string) error {
	process, err := readProcess()
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	attr := &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, w}, Env: append(os.Environ(), "RKT_FLY_ROOT="+root),
		Sys: &syscall.SysProcAttr{Setsid: true},
	}
	if socket := os.Getenv("RKT_CONSOLE_SOCKET"); socket != "" {
		slave, err := openConsole(socket, process)
		if err != nil {
			return fmt.Errorf("console: %w", err)
		}
		attr.Files[0], attr.Files[1], attr.Files[2] = slave, slave, slave
		attr.Sys.Setctty = true
	}
	c, err := os.StartProcess("/proc/self/exe", []string{"enter", childArgument}, attr)
	if err != nil {
		return err
	}
	_ = w.Close()
	why, err := io.ReadAll(r)
	if err == nil && len(why) > 0 {
		err = fmt.Errorf("%s", why)
	}
	if err == nil {
		err = ready(c.Pid)
	}
	if err != nil {
		_ = c.Kill()
		_, _ = c.Wait()
		return err
	}
	return endAs(c)
}

func readProcess() (*ociProcess, error) {
	text, err := os.ReadFile(os.Getenv("RKT_PROCESS"))
	if err != nil {
		return nil, err
	}
	p := &ociProcess{}
	if err := json.Unmarshal(text, p); err != nil || len(p.Args) == 0 {
		return nil, fmt.Errorf("RKT_PROCESS is not an OCI process with args (%v)", err)
	}
	return p, nil
}

// endAs waits for a process. Then this process ends in the same way.
func endAs(c *os.Process) error {
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		_ = f.Close() // only the program may have these open, because readers wait for their end
	}
	state, err := c.Wait()
	if err != nil {
		return err
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		os.Exit(128 + int(ws.Signal()))
	}
	os.Exit(state.ExitCode())
	return nil
}

// child enters the cgroup and the root, and becomes the program.
func child() error {
	unix.CloseOnExec(childFD)
	if err := becomeExec(); err != nil {
		_, _ = unix.Write(childFD, []byte(err.Error()))
	}
	os.Exit(exitUnfit)
	return nil
}

func becomeExec() error {
	for _, dir := range append(filepath.SplitList(os.Getenv("RKT_CGROUP")), filepath.SplitList(os.Getenv("RKT_CGROUP_UNIFIED"))...) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("enter the cgroup: %w", err)
		}
	}
	process, err := readProcess()
	if err != nil {
		return err
	}
	score := ""
	if process.OOMScoreAdj != nil {
		score = strconv.Itoa(*process.OOMScoreAdj)
	}
	if err := restrict(score, process.NoNewPrivileges); err != nil {
		return err
	}
	p := &program{
		args: process.Args, env: process.Env, cwd: process.Cwd,
		uid: process.User.UID, gid: process.User.GID, groups: process.User.Groups,
	}
	return p.become(os.Getenv("RKT_FLY_ROOT"), nil)
}

// openConsole makes a terminal, sends its master to stage 0 and returns its slave.
func openConsole(socket string, p *ociProcess) (*os.File, error) {
	master, slaveFD, err := proc.OpenTerminal(0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(master)
	slave := os.NewFile(uintptr(slaveFD), "terminal")
	if s := p.ConsoleSize; s != nil {
		if err := unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Row: s.Height, Col: s.Width}); err != nil {
			return nil, err
		}
	}
	if err := slave.Chown(p.User.UID, -1); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		return nil, err
	}
	return slave, proc.Send(fd, []byte("/dev/ptmx"), master)
}
