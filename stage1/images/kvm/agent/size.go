package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// changeSize returns when the processors that the machine is to have are online. The kernel sets memory
// online by itself, soon after the host has added it.
func (a *agent) changeSize(ctx context.Context, size *channel.Size) error {
	select {
	case a.sizing <- struct{}{}:
		defer func() { <-a.sizing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := loadLater("virtio_mem"); err != nil {
		return fmt.Errorf("load the driver of memory: %w", err)
	}
	found, err := newDevices(ctx)
	if err != nil {
		return err
	}
	defer found.close()
	for n := 1; n < size.CPUs; { // the first is always online
		err := setOnline(n, "1")
		switch {
		case err == nil:
			n++
		case !errors.Is(err, fs.ErrNotExist):
			return err
		default:
			// The kernel has not found it yet.
			if err := found.next(); err != nil {
				return fmt.Errorf("processor %d: %w", n, err)
			}
		}
	}
	for n := size.CPUs; ; n++ {
		if err := setOnline(n, "0"); errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// setOnline sets a processor online ("1") or offline ("0"). To set it as it is is no error.
func setOnline(n int, state string) error {
	path := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", n)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(state)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("set processor %d online or offline: %w", n, err)
	}
	return nil
}
