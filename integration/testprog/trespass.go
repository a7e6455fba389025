package main

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// trespass prints every operation that this process may do on another process and on the
// files of its /proc/PID. Each line has the operation and the path below /proc/PID. Files
// are opened and not written to. After the word "undumpable" trespass prints the operations
// that it may do on any undumpable process, whose files in /proc the kernel gives to root.
// It tries these on a child of its own.
func trespass(pid int) {
	t := newTrespasser(pid)
	t.all()
	t.print("")
	child := exec.Command("/proc/self/exe", "undumpable")
	out, err := child.StdoutPipe()
	must(err)
	must(child.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	must(err)
	t = newTrespasser(child.Process.Pid)
	t.all()
	t.print("undumpable ")
	must(child.Process.Kill())
}

// undumpable makes this process undumpable, and waits.
func undumpable() {
	must(unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
	fmt.Println("ready")
	forever()
}

type trespasser struct {
	top, pid string
	may      map[string]bool
}

func newTrespasser(pid int) *trespasser {
	return &trespasser{top: fmt.Sprint("/proc/", pid), pid: fmt.Sprint(pid), may: map[string]bool{}}
}

func (t *trespasser) print(before string) {
	for _, line := range slices.Sorted(maps.Keys(t.may)) {
		fmt.Println(before + line)
	}
}

// all tries all operations.
func (t *trespasser) all() {
	t.enter(t.top)
	// The kernel follows these links without reading their text.
	for _, name := range []string{"root", "cwd", "exe"} {
		t.try(filepath.Join(t.top, name))
	}
	root, err := os.Stat(filepath.Join(t.top, "root"))
	cwd, err2 := os.Stat(filepath.Join(t.top, "cwd"))
	t.enter(filepath.Join(t.top, "root"))
	if err != nil || err2 != nil || !os.SameFile(root, cwd) {
		t.enter(filepath.Join(t.top, "cwd"))
	}
	for _, dir := range []string{"ns", "fd", "map_files"} {
		for _, e := range entries(filepath.Join(t.top, dir)) {
			t.try(filepath.Join(t.top, dir, e.Name()))
		}
	}
	pid := number([]string{t.pid}, 0)
	t.note("signal", t.top+"/", unix.Kill(pid, 0))
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0); errno == 0 {
		t.note("trace", t.top+"/", nil)
	}
}

// note records an allowed operation. Names that differ between otherwise equal processes are
// replaced by the same text.
func (t *trespasser) note(operation, path string, err error) {
	if err != nil {
		return
	}
	parts := strings.Split(strings.TrimPrefix(path, t.top), "/")
	for i, part := range parts {
		switch {
		case part == t.pid && (i == 0 || parts[i-1] != "fd" && parts[i-1] != "fdinfo"):
			parts[i] = "PID"
		case i > 0 && parts[i-1] == "map_files":
			parts[i] = "RANGE"
		case i == 2 && (parts[1] == "root" || parts[1] == "cwd") && (part == "hold" || part == "pause"):
			parts[i] = "PROGRAM"
		}
	}
	t.may[operation+" "+strings.Join(parts, "/")] = true
}

// enter tries all operations in a directory. It skips other processes, and a read-only sysfs,
// which has more files than everything else.
func (t *trespasser) enter(dir string) {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) == nil && fs.Type == unix.SYSFS_MAGIC && fs.Flags&unix.ST_RDONLY != 0 {
		t.note("open-to-read", dir, nil)
		return
	}
	t.create(dir)
	for _, e := range entries(dir) {
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.Trim(e.Name(), "0123456789") == "" && e.Name() != t.pid && e.IsDir():
		case e.Type() == os.ModeSymlink:
			if _, err := os.Readlink(path); err == nil {
				t.note("readlink", path, nil)
			}
		case e.IsDir():
			t.enter(path)
		default:
			t.try(path)
		}
	}
}

func entries(dir string) []os.DirEntry {
	list, _ := os.ReadDir(dir) // skip a directory that cannot be read
	return list
}

// try opens a file in all modes, and reads a byte of it.
func (t *trespasser) try(path string) {
	const flags = unix.O_CLOEXEC | unix.O_NOCTTY | unix.O_NONBLOCK
	for operation, mode := range map[string]int{"open-to-read": unix.O_RDONLY, "open-to-write": unix.O_WRONLY, "open-to-append": unix.O_RDWR | unix.O_APPEND} {
		fd, err := unix.Open(path, flags|mode, 0)
		if err != nil {
			continue
		}
		t.note(operation, path, nil)
		if mode == unix.O_RDONLY {
			var b [1]byte
			if n, err := unix.Read(fd, b[:]); err == nil && n > 0 {
				t.note("read", path, nil)
			}
		}
		unix.Close(fd)
	}
}

// create makes a file in a directory, and removes it.
func (t *trespasser) create(dir string) {
	path := filepath.Join(dir, "trespass")
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return
	}
	unix.Close(fd)
	t.note("create", dir, os.Remove(path))
}
