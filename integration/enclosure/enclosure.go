// Package enclosure runs a program as if it had the machine to itself. A suite with constant
// paths, names and ports then does not conflict with anything on the machine, and leaves
// nothing there.
//
// A program that calls Run is executed again, as the first process of new PID, mount, network
// and cgroup namespaces. There it calls Enter, which finishes the namespaces, and Exec, which
// runs another program and reaps the processes that the program leaves. When the first process
// ends, all others of the enclosure end with it.
//
// The enclosure has its own processes, loopback interface (there is no other), roots of
// cgroup hierarchies, /run, /tmp, /opt and /var/lib, and changes below /etc stay in it.
// Everything else is the machine's: its kernel, devices, users and programs.
package enclosure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// Variables for the second execution: the enclosure's directory and the name of its cgroups.
const (
	dirVariable    = "RKT_ENCLOSURE"
	cgroupVariable = "RKT_ENCLOSURE_CGROUP"
)

// private are the directories that are empty in an enclosure.
var private = []string{"/run", "/tmp", "/opt", "/var/lib"}

// Enclosure describes an enclosure to run.
type Enclosure struct {
	// Dir has the contents of the private directories. See Path.
	Dir string
	// Args are the arguments of the program when it is executed again.
	Args []string
	// Stdout and Stderr are those of the program when it is executed again.
	Stdout, Stderr io.Writer
}

// Path returns the path outside the enclosure of a file whose path inside is name. name
// must be below one of the private directories. If Dir is empty, there is no enclosure, and
// Path returns name.
func (e Enclosure) Path(name string) string {
	if e.Dir == "" {
		return name
	}
	return filepath.Join(e.Dir, flat(name))
}

// flat replaces the private directory at the beginning of a path by a name without slashes.
func flat(name string) string {
	for _, p := range private {
		if rest, ok := strings.CutPrefix(name+"/", p+"/"); ok {
			return filepath.Join(strings.ReplaceAll(p[1:], "/", "-"), rest)
		}
	}
	panic("enclosure: " + name + " is not private")
}

// Prepare makes the private directories. Files can then be copied to Path.
func (e Enclosure) Prepare() error {
	for _, p := range private {
		if err := os.MkdirAll(e.Path(p), 0o755); err != nil {
			return err
		}
	}
	for _, sub := range []string{"etc-upper", "etc-work"} {
		if err := os.MkdirAll(filepath.Join(e.Dir, sub), 0o755); err != nil {
			return err
		}
	}
	return os.Chmod(e.Path("/tmp"), 0o1777)
}

// Run executes this program again, inside, and returns its exit code, which is -1 if a signal
// killed it. If ctx or this process ends, the enclosure ends with all its processes.
func (e Enclosure) Run(ctx context.Context) (code int, err error) {
	hierarchies, err := machineHierarchies()
	if err != nil {
		return 0, err
	}
	name := fmt.Sprintf("enclosure-%d-%s", os.Getpid(), filepath.Base(e.Dir))
	defer func() { err = errors.Join(err, removeCgroups(hierarchies, name)) }()
	if err := makeCgroups(hierarchies, name); err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", e.Args...)
	cmd.Env = append(os.Environ(), dirVariable+"="+e.Dir, cgroupVariable+"="+name)
	cmd.Stdout, cmd.Stderr = e.Stdout, e.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		Setpgid:    true, // only this process gets an interrupt of the terminal
		Pdeathsig:  syscall.SIGKILL,
	}
	// The kernel sends the death signal when the thread that started the process ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// Inside reports whether this program runs in an enclosure.
func Inside() bool { return os.Getenv(dirVariable) != "" }
