package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// sleep waits until the host wakes the machine. The time and all random numbers that are drawn then are the machine's own.
func sleep(port *os.File) error {
	w, err := channel.Sleep(port)
	if err != nil {
		return err
	}
	if err := mixIn(w.Random[:]); err != nil {
		return fmt.Errorf("take the host's random numbers: %w", err)
	}
	now := unix.NsecToTimespec(w.Time.UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &now); err != nil {
		return fmt.Errorf("set the machine's clock: %w", err)
	}
	return nil
}

// mixIn has the kernel's generator begin anew, with numbers that no other machine has.
func mixIn(random []byte) error {
	fd, err := unix.Open("/dev/urandom", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	pool := binary.NativeEndian.AppendUint32(nil, uint32(8*len(random))) // bits
	pool = append(binary.NativeEndian.AppendUint32(pool, uint32(len(random))), random...)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&pool[0]))); errno != 0 {
		return errno
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.RNDRESEEDCRNG, 0); errno != 0 {
		return errno
	}
	return nil
}
