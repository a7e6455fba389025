package container

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// become gives this thread the identity of the program. With keepAdmin the thread also
// keeps CAP_SYS_ADMIN, without which it could load a seccomp filter only if the process has
// no_new_privs. The capability must be dropped before execve.
//
// Raw system calls change this thread only. The process's other threads belong to the Go
// runtime and end at the exec.
func (r *process) become(keepAdmin bool, userNamespace bool) error {
	caps, err := r.Caps.available()
	if err != nil {
		return err
	}
	// From here on processes of the app, and of containers that share its PID namespace,
	// could look at this process. Being undumpable hides its memory and descriptors from
	// them.
	if err := doing("make the process undumpable", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)); err != nil {
		return err
	}
	if keepAdmin {
		caps.Permitted |= 1 << unix.CAP_SYS_ADMIN
		caps.Effective |= 1 << unix.CAP_SYS_ADMIN
	}
	return inOrder(
		func() error { return dropBounding(r.Caps.Bounding) },
		func() error { return doing("keep capabilities", unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0)) },
		func() error { return r.setIDs(userNamespace) },
		caps.apply,
		func() error { return doing("keep capabilities no more", unix.Prctl(unix.PR_SET_KEEPCAPS, 0, 0, 0, 0)) },
	)
}

// setGroups sets this thread's groups. The wrapper of the library would set every thread's.
func setGroups(groups []uint32) unix.Errno {
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	_, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0)
	return e
}

func (r *process) setIDs(userNamespace bool) error {
	if e := setGroups(r.Groups); e != 0 {
		// In a user namespace the right to drop groups may be missing.
		if !userNamespace || e != unix.EPERM || len(r.Groups) > 0 {
			return fmt.Errorf("setgroups: set %d additional groups: %w", len(r.Groups), e)
		}
	}
	gid, uid := uintptr(r.GID), uintptr(r.UID)
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); e != 0 {
		return fmt.Errorf("set gid %d: %w", r.GID, e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); e != 0 {
		return fmt.Errorf("set uid %d: %w", r.UID, e)
	}
	return nil
}

// home returns the home directory of a user from the app's /etc/passwd, or "/" if the user
// has none.
func home(uid uint32) string {
	const fallback = "/"
	// The file is the image's. It may be a fifo without a writer, or a link that leads
	// through the root of another process to a file of the host.
	fd, err := unix.Openat2(unix.AT_FDCWD, "/etc/passwd", &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return fallback
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fallback
	}
	if h := findHome(descriptor(fd), uid); h != "" {
		return h
	}
	return fallback
}

// descriptor reads and writes a regular file without the Go runtime's poller.
type descriptor int

func (d descriptor) Read(p []byte) (int, error) {
	n, err := unix.Read(int(d), p)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (d descriptor) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		n, err := unix.Write(int(d), p[written:])
		if err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}

// findHome reads lines of passwd(5). It skips other lines.
func findHome(passwd io.Reader, uid uint32) string {
	const most = 16 << 20 // limits a file that an image supplies
	lines := bufio.NewScanner(io.LimitReader(passwd, most))
	lines.Buffer(nil, most) // a long line hides no user after it
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) < 6 {
			continue
		}
		if id, err := strconv.ParseUint(fields[2], 10, 32); err == nil && uint32(id) == uid {
			return fields[5]
		}
	}
	return ""
}

// enterCwd enters the program's working directory. It is called twice: as root, who may
// enter directories that the user may not, and as the user, who may enter directories of a
// network filesystem that root may not.
func (r *process) enterCwd() error {
	err := chdir(r.Cwd)
	if errors.Is(err, unix.ELOOP) {
		err = errors.New("it leads through links of /proc that are no paths, or in a circle: a breakout is attempted")
	}
	if err != nil {
		return fmt.Errorf("chdir to cwd (%q) set in config.json failed: %w", r.Cwd, err)
	}
	// The working directory must not be a directory of the host, because that would be a
	// way out of the container.
	buf := make([]byte, unix.PathMax)
	n, err := unix.Getcwd(buf)
	if err != nil || n == 0 || buf[0] != '/' { // the kernel says "(unreachable)/…"
		return errors.New("current working directory is outside of the app's root: a breakout is attempted")
	}
	return nil
}

// chdir is chdir(2), but refuses the magic links of /proc, because they lead to open files
// or to the root of a process, which may be the host's.
func chdir(dir string) error {
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchdir(fd)
}
