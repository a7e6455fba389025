package mount

import (
	"fmt"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// fuseMagic is the type of FUSE in statfs(2).
const fuseMagic = 0x65735546

// An unmount waits until files that are just being closed are closed.
const (
	busyAttempts = 50
	busyPause    = 50 * time.Millisecond
)

// helperOf returns the program that mounts a type such as fuse3.NAME, and NAME.
func helperOf(kind string) (helper, name string, ok bool) {
	prefix, name, ok := strings.Cut(kind, ".")
	if !ok || prefix != "fuse" && prefix != "fuse3" {
		return "", "", false
	}
	return "mount." + prefix, name, true
}

func mountByHelper(helper, kind string, m *types.Mount, target string) error {
	args := []string{m.Source, target}
	for _, o := range m.Options {
		args = append(args, "-o", o)
	}
	out, err := exec.Command(helper, append(args, "-t", kind)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %q: %w", helper, out, err)
	}
	return nil
}

// unmount undoes the last mount at a path. The helpers of FUSE end the program that serves the
// file system.
func unmount(target string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(target, &st); err == nil && st.Type == fuseMagic {
		for _, helper := range []string{"fusermount3", "fusermount"} {
			if err := exec.Command(helper, "-u", target).Run(); err == nil {
				return nil
			}
		}
	}
	for i := 0; ; i++ {
		err := unix.Unmount(target, 0)
		if err != unix.EBUSY || i == busyAttempts {
			return err
		}
		time.Sleep(busyPause)
	}
}
