package enclosure

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// enter finishes the namespaces of this process. Call it once, early, on the goroutine that
// will call Exec, because both must run on one thread.
func enter() error {
	runtime.LockOSThread()
	dir, cgroup := os.Getenv(dirVariable), os.Getenv(cgroupVariable)
	for _, v := range []string{dirVariable, cgroupVariable} {
		if err := os.Unsetenv(v); err != nil {
			return err
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := enterCgroups(cgroup); err != nil {
		return err
	}
	if err := coverDirectories(dir); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return raiseLoopback()
}

// coverDirectories mounts the private directories over the machine's. One of the machine's may
// contain dir, so all private directories are opened before the first mount.
func coverDirectories(dir string) error {
	lower := "lowerdir=/etc,upperdir=" + filepath.Join(dir, "etc-upper") + ",workdir=" + filepath.Join(dir, "etc-work")
	if err := unix.Mount("overlay", "/etc", "overlay", 0, lower); err != nil {
		return fmt.Errorf("mount an overlay over /etc: %w", err)
	}
	sources := map[string]*os.File{}
	for _, p := range private {
		f, err := os.Open(Enclosure{Dir: dir}.Path(p))
		if err != nil {
			return err
		}
		defer f.Close()
		sources[p] = f
	}
	for _, p := range private {
		if err := forgetMountsBelow(p, dir); err != nil {
			return err
		}
		if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", sources[p].Fd()), p, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cover %s: %w", p, err)
		}
	}
	return nil
}

// forgetMountsBelow unmounts this namespace's copies of mounts below a directory. Otherwise
// these file systems would stay in use as long as the enclosure runs.
func forgetMountsBelow(path, dir string) error {
	infos, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(m.Mountpoint, path+"/") || strings.HasPrefix(dir+"/", m.Mountpoint+"/"), false
	})
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(infos) {
		err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH)
		// When a mount point is removed on the machine, the kernel unmounts it here as well.
		gone := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL)
		if err != nil && !gone {
			return fmt.Errorf("unmount %s: %w", m.Mountpoint, err)
		}
	}
	return nil
}

func raiseLoopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("raise the loopback interface: %w", err)
	}
	return nil
}
