package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// mountDisk mounts the disk of an app.
func mountDisk(app string, d *channel.Disk) error {
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	if !strings.Contains(string(known), "\t"+d.Type+"\n") { // Debian's kernel has ext4 without a module
		if err := loadLater(d.Type); err != nil {
			return err
		}
	}
	device, err := findDisk(d.Serial)
	if err != nil {
		return err
	}
	flags := uintptr(unix.MS_NODEV)
	if d.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	return mount(d.Type, device, filepath.Join(channel.GuestDisks, app), flags, "")
}

// findDisk waits until the disk with a serial number can be opened, and returns the path of its device.
func findDisk(serial string) (string, error) {
	if err := loadLater("virtio_blk"); err != nil {
		return "", err
	}
	found, err := newDevices()
	if err != nil {
		return "", err
	}
	defer found.Close()
	for {
		serials, _ := filepath.Glob("/sys/block/vd*/serial")
		for _, path := range serials {
			if text, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(text)) != serial {
				continue
			}
			device := filepath.Join("/dev", filepath.Base(filepath.Dir(path)))
			fd, err := unix.Open(device, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				return device, unix.Close(fd)
			}
			// The kernel makes the serial number, then the node, then the disk, and tells of it afterwards.
			if err != unix.ENOENT && err != unix.ENXIO {
				return "", &os.PathError{Op: "open", Path: device, Err: err}
			}
		}
		if err := found.next(); err != nil {
			return "", err
		}
	}
}

// unmountDisk writes back and unmounts the disk of an app, if it has one.
func unmountDisk(app string) error {
	path := filepath.Join(channel.GuestDisks, app)
	err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil && err != unix.EINVAL { // EINVAL: the mount has failed
		return fmt.Errorf("unmount the disk of app %s: %w", app, err)
	}
	return os.Remove(path)
}
