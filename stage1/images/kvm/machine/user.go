package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Users is a range of user ids that nothing else on the host uses. Each machine has one of them, for
// its user and its group.
type Users struct {
	First, Count int
	// Dir has a file for each id that was used. The machine has it locked, so the kernel frees the
	// id when the process that has booted the machine ends, for whatever reason.
	Dir string
}

// defaultUsers are ids that no program gives to users: https://systemd.io/UIDS-GIDS names them as unused.
var defaultUsers = Users{First: 0x70000000, Count: 65536, Dir: "/run/containerd-shim-rkt/kvm-users"}

// claim returns an id of the range, and the locked file that keeps it.
func (u Users) claim() (int, *os.File, error) {
	if err := os.MkdirAll(u.Dir, 0o700); err != nil {
		return 0, nil, fmt.Errorf("claim a user for the machine: %w", err)
	}
	for id := u.First; id < u.First+u.Count; id++ {
		f, err := proc.Lock(filepath.Join(u.Dir, strconv.Itoa(id)), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, unix.LOCK_EX|unix.LOCK_NB)
		if f != nil {
			return id, f, nil
		}
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return 0, nil, fmt.Errorf("claim a user for the machine: %w", err)
		}
	}
	return 0, nil, fmt.Errorf("claim a user for the machine: all %d ids from %d on are in use", u.Count, u.First)
}
