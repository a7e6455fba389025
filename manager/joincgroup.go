package manager

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// joinCgroup makes the next child of the calling, locked thread start in an existing
// cgroup. If the child were moved afterwards, the move would take a grace period of
// the kernel, and containerd's cgroup would be charged for the memory that the child
// had allocated before.
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
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup"))
	if err != nil {
		return err
	}
	return joinCgroup1(mounts, path)
}

// joinCgroup1 moves the calling thread. The cgroup may be missing in some of the
// hierarchies.
func joinCgroup1(mounts []*mountinfo.Info, path string) error {
	joined := false
	for _, m := range mounts {
		f, err := os.OpenFile(filepath.Join(inCgroup(m.Mountpoint, path), "tasks"), os.O_WRONLY, 0)
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

// inCgroup joins root and path. The result is never outside root.
func inCgroup(root, path string) string {
	return filepath.Join(root, filepath.Clean("/"+path))
}
