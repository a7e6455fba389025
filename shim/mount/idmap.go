package mount

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// mapIDs puts a clone of the mounts at source, mapped to a user namespace, at target. set has
// further MOUNT_ATTR_* of it.
func mapIDs(source, target string, user *os.File, set uint64) error {
	var copier proc.MountCopier
	copied, err := copier.Copy(source, true)
	if err != nil {
		return fmt.Errorf("clone the mounts of %s: %w", source, err)
	}
	defer copied.Close()
	tree := int(copied.Fd())
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | set, Propagation: unix.MS_PRIVATE, Userns_fd: uint64(user.Fd())}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attributes); err != nil {
		return fmt.Errorf("map the ids of %s: %w", source, err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach the mapped mounts of %s: %w", source, err)
	}
	return nil
}

// userNamespace returns a new user namespace. A map is CONTAINER:HOST:SIZE, or several of these
// with commas between them.
func userNamespace(uidmap, gidmap string) (*os.File, error) {
	uids, err := parseMap(uidmap)
	if err != nil {
		return nil, err
	}
	gids, err := parseMap(gidmap)
	if err != nil {
		return nil, err
	}
	return proc.UserNamespace(uids, gids)
}

func parseMap(text string) (all []syscall.SysProcIDMap, err error) {
	for entry := range strings.SplitSeq(text, ",") {
		var ids [3]int
		words := strings.Split(entry, ":")
		if len(words) != len(ids) {
			return nil, fmt.Errorf("the map of ids %q is not CONTAINER:HOST:SIZE: %w", entry, unix.EINVAL)
		}
		for i, word := range words {
			if ids[i], err = strconv.Atoi(word); err != nil || ids[i] < 0 {
				return nil, fmt.Errorf("%q in the map of ids %q is no number: %w", word, entry, unix.EINVAL)
			}
		}
		all = append(all, syscall.SysProcIDMap{ContainerID: ids[0], HostID: ids[1], Size: ids[2]})
	}
	return all, nil
}
