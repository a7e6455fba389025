package mount

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Other processes may take the loop device that the kernel has named before this one does, and the kernel gives up the device of an
// unmounted file a moment later.
const (
	loopAttempts = 100
	loopPause    = 10 * time.Millisecond
)

// attach makes a file a loop device. The kernel frees the device when it is neither open nor
// mounted. The file is locked as long: two kernels, or two mounts, must not use a file system that one of them writes, such as that of a
// machine, or of an earlier mount that a process still uses.
func attach(path string, readonly, direct bool) (*os.File, error) {
	mode, lock := os.O_RDWR, unix.LOCK_EX
	if readonly {
		mode, lock = os.O_RDONLY, unix.LOCK_SH
	}
	file, err := os.OpenFile(path, mode, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for i := 0; ; i++ {
		err := unix.Flock(int(file.Fd()), lock|unix.LOCK_NB)
		var device *os.File
		if err == nil {
			device, err = attachTo(file, mode, direct)
		}
		switch {
		case err == nil:
			return device, nil
		case errors.Is(err, unix.EWOULDBLOCK) && i == loopAttempts:
			return nil, fmt.Errorf("%s is in use, by a machine or another mount: %w", path, err)
		case i == loopAttempts || !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EWOULDBLOCK):
			return nil, err
		}
		time.Sleep(loopPause)
	}
}

func attachTo(file *os.File, mode int, direct bool) (_ *os.File, err error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return nil, fmt.Errorf("find a free loop device: %w", err)
	}
	device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", number), mode, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			device.Close()
		}
	}()
	c := unix.LoopConfig{Fd: uint32(file.Fd())}
	copy(c.Info.File_name[:len(c.Info.File_name)-1], file.Name())
	c.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
	if mode == os.O_RDONLY {
		c.Info.Flags |= unix.LO_FLAGS_READ_ONLY
	}
	if direct {
		c.Info.Flags |= unix.LO_FLAGS_DIRECT_IO
	}
	err = unix.IoctlLoopConfigure(int(device.Fd()), &c)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTTY) {
		err = configureInSteps(int(device.Fd()), &c) // Linux before 5.8
	}
	if err != nil {
		return nil, fmt.Errorf("make %s the device %s: %w", file.Name(), device.Name(), err)
	}
	return device, nil
}

// configureInSteps does what LOOP_CONFIGURE does since Linux 5.8.
func configureInSteps(device int, c *unix.LoopConfig) error {
	if err := unix.IoctlSetInt(device, unix.LOOP_SET_FD, int(c.Fd)); err != nil {
		return err
	}
	err := unix.IoctlLoopSetStatus64(device, &c.Info)
	if err == nil && c.Info.Flags&unix.LO_FLAGS_DIRECT_IO != 0 {
		err = unix.IoctlSetInt(device, unix.LOOP_SET_DIRECT_IO, 1)
	}
	if err != nil {
		_ = unix.IoctlSetInt(device, unix.LOOP_CLR_FD, 0)
	}
	return err
}
