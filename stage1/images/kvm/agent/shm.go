package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// mountShm mounts a /dev/shm that apps share, unless an app before has it.
func (a *agent) mountShm(ctx context.Context, shm *channel.Shm) error {
	select {
	case a.mounting <- struct{}{}:
		defer func() { <-a.mounting }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if _, err := os.Stat(shm.Path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	data := fmt.Sprintf("mode=%#o,size=%d", shm.Mode, shm.Size)
	err := mount("tmpfs", "shm", shm.Path, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, data)
	if err != nil {
		err = errors.Join(err, os.Remove(shm.Path))
	}
	return err
}
