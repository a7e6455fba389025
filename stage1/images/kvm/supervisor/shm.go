package supervisor

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// shmOf returns the tmpfs of the machine that takes the place of a directory of the host as /dev/shm, or nil
// if that is not the shared memory of a pod. containerd, Docker and stage 0 mount that as a tmpfs named shm,
// which is empty until the first app, and only the pod's apps have it.
func shmOf(dir *os.File) (*channel.Shm, error) {
	var st, own unix.Stat_t
	var sys unix.Statfs_t
	fd := int(dir.Fd())
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "look at", Path: dir.Name(), Err: err}
	}
	if err := unix.Fstatfs(fd, &sys); err != nil {
		return nil, &os.PathError{Op: "look at", Path: dir.Name(), Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || sys.Type != unix.TMPFS_MAGIC {
		return nil, nil
	}
	if unix.Stat("/dev/shm", &own) == nil && own.Dev == st.Dev {
		return nil, nil // the host's
	}
	named, err := isNamedShm(fd)
	if err != nil || !named {
		return nil, err
	}
	list, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, err
	}
	defer list.Close()
	if _, err := list.ReadDir(1); err != io.EOF {
		return nil, err // it has a file of the host
	}
	// The number of the tmpfs is the host's word for this pod's shared memory. It stays mounted as long as
	// the pod exists.
	path := filepath.Join(channel.GuestShm, fmt.Sprint(st.Dev))
	return &channel.Shm{Path: path, Size: sys.Blocks * uint64(sys.Bsize), Mode: st.Mode & 0o7777}, nil
}

// isNamedShm reports whether a descriptor is the root of a mount of a tmpfs named shm.
func isNamedShm(fd int) (bool, error) {
	var stx unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, 0, &stx); err != nil || stx.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false, err
	}
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return false, err
	}
	id := ""
	for line := range strings.Lines(string(info)) {
		if value, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			id = strings.TrimSpace(value)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(mounts)) {
		fields, kind, _ := strings.Cut(line, " - ")
		if words := strings.Fields(fields); len(words) > 3 && words[0] == id {
			return words[3] == "/" && strings.HasPrefix(kind, "tmpfs shm "), nil
		}
	}
	return false, nil
}
