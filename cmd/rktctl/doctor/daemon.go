package doctor

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// versionLimit is how long a program may take to print its version.
const versionLimit = 10 * time.Second

// daemon is a running containerd.
type daemon struct {
	pid  int
	exe  string
	args []string
	env  map[string]string
}

// findDaemon returns the containerd of this machine. It takes no process for it that a user
// or a container could have started: the process has to be root's, and in the mount namespace
// of this one.
func (e *examination) findDaemon() *daemon {
	entries, _ := os.ReadDir(e.Proc)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || e.read(entry.Name()+"/comm") != "containerd" || !e.isOurs(entry.Name()) {
			continue
		}
		d := &daemon{pid: pid, env: map[string]string{}, args: split(e.read(entry.Name() + "/cmdline"))}
		d.exe, _ = os.Readlink(filepath.Join(e.Proc, entry.Name(), "exe"))
		for _, v := range split(e.read(entry.Name() + "/environ")) {
			name, value, _ := strings.Cut(v, "=")
			if name == "PATH" || strings.HasPrefix(name, "RKT_") { // others may be secret
				d.env[name] = value
			}
		}
		return d
	}
	return nil
}

// isOurs reports whether a process is root's and in this process's mount namespace.
func (e *examination) isOurs(pid string) bool {
	st, err := os.Stat(filepath.Join(e.Proc, pid))
	if err != nil {
		return false
	}
	if s, ok := st.Sys().(*syscall.Stat_t); !ok || s.Uid != 0 {
		return false
	}
	// An app of a stage1 that only changes the root has this mount namespace.
	root, err := os.Stat(filepath.Join(e.Proc, pid, "root"))
	own, err2 := os.Stat(filepath.Join(e.Proc, "self/root"))
	if err != nil || err2 != nil || !os.SameFile(root, own) {
		return false
	}
	theirs, err := os.Readlink(filepath.Join(e.Proc, pid, "ns/mnt"))
	ours, err2 := os.Readlink(filepath.Join(e.Proc, "self/ns/mnt"))
	return err == nil && err2 == nil && theirs == ours
}

// split returns the strings of a file whose strings end in a NUL.
func split(text string) []string {
	return strings.Split(strings.Trim(text, "\x00"), "\x00")
}

// config returns the path of the configuration with which the daemon was started, or an empty
// string.
func (d *daemon) config() string {
	for i, a := range d.args {
		for _, flag := range []string{"--config", "-config", "-c"} {
			if a == flag && i+1 < len(d.args) {
				return d.args[i+1]
			}
			if value, ok := strings.CutPrefix(a, flag+"="); ok {
				return value
			}
		}
	}
	return ""
}

// getenv returns a variable of the daemon's environment, or of this process's if no daemon
// runs.
func (e *examination) getenv(name string) string {
	if e.daemon == nil {
		return e.Getenv(name)
	}
	return e.daemon.env[name]
}

// lookPath finds a program as containerd does. The error is that of a program that is not
// there, and path that of a link that leads nowhere.
func (e *examination) lookPath(name string) (path string, err error) {
	for _, dir := range filepath.SplitList(e.getenv("PATH")) {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err == nil {
			_, err = os.Stat(path)
			return path, err
		}
	}
	return "", os.ErrNotExist
}

// versionOf executes a program that only root can have written, and returns its output.
func (e *examination) versionOf(path, flag string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || !isRoots(real) {
		return ""
	}
	ctx, cancel := context.WithTimeout(e.ctx, versionLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, real, flag)
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{"PATH=" + e.getenv("PATH")}, "/", time.Second
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(out))
}

// isRoots reports whether a file is regular, and only root can write it or replace it.
func isRoots(path string) bool {
	if st, err := os.Lstat(path); err != nil || !st.Mode().IsRegular() {
		return false
	}
	for ; ; path = filepath.Dir(path) {
		st, err := os.Lstat(path)
		if err != nil {
			return false
		}
		s, ok := st.Sys().(*syscall.Stat_t)
		if !ok || s.Uid != 0 || st.Mode().Perm()&0o022 != 0 && st.Mode()&fs.ModeSticky == 0 {
			return false
		}
		if path == "/" {
			return true
		}
	}
}

var numbers = regexp.MustCompile(`\bv?([0-9]+)\.([0-9]+)\.[0-9]+`)

// majorMinor returns the version in the output of a program, or zeros.
func majorMinor(text string) (major, minor int) {
	if m := numbers.FindStringSubmatch(text); m != nil {
		major, _ = strconv.Atoi(m[1])
		minor, _ = strconv.Atoi(m[2])
	}
	return major, minor
}
