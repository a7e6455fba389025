package manager

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// joinCgroup arranges for the next child of the calling, locked thread to be
// born in an existing cgroup. Moving the child afterwards would make it wait for
// a grace period of the kernel, and its first allocations would be charged to
// containerd.
func joinCgroup(path string, sys *syscall.SysProcAttr) error {
	var st unix.Statfs_t
	if err := unix.Statfs(cgroupRoot, &st); err != nil {
		return err
	}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		fd, err := unix.Open(inCgroup(cgroupRoot, path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		sys.UseCgroupFD, sys.CgroupFD = err == nil, fd
		return err
	}
	mountinfo, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer mountinfo.Close()
	roots, err := cgroup1Roots(mountinfo)
	if err != nil {
		return err
	}
	return joinCgroup1(roots, path)
}

// joinCgroup1 moves the calling thread. Not every hierarchy needs to have the
// cgroup.
func joinCgroup1(roots []string, path string) error {
	joined := false
	for _, root := range roots {
		f, err := os.OpenFile(filepath.Join(inCgroup(root, path), "tasks"), os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = f.WriteString("0")
		f.Close()
		if err != nil {
			return err
		}
		joined = true
	}
	if !joined {
		return fs.ErrNotExist
	}
	return nil
}

// inCgroup stays below root, whatever the path says.
func inCgroup(root, path string) string {
	return filepath.Join(root, filepath.Clean("/"+path))
}

// cgroup1Roots returns where the hierarchies of version 1 are mounted.
func cgroup1Roots(mountinfo io.Reader) ([]string, error) {
	var roots []string
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		mount, source, ok := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(mount)
		if ok && len(fields) > 4 && strings.HasPrefix(source, "cgroup ") {
			roots = append(roots, fields[4])
		}
	}
	return roots, lines.Err()
}
