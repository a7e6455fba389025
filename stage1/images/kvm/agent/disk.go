package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// mountRoot mounts the disks of an app and what is made of them.
func mountRoot(ctx context.Context, app string, r *channel.Root) error {
	dir := filepath.Join(channel.GuestDisks, app)
	for i := range r.Disks {
		if err := mountDisk(ctx, filepath.Join(dir, strconv.Itoa(i)), &r.Disks[i]); err != nil {
			return err
		}
	}
	if r.Overlay == nil {
		return nil
	}
	if err := needKind(r.Overlay.Type); err != nil {
		return err
	}
	if err := r.Overlay.Prepare(dir); err != nil {
		return err
	}
	flags, options := uintptr(unix.MS_NODEV), []string(nil)
	for _, o := range r.Overlay.Options {
		switch o {
		case "rw":
		case "ro":
			flags |= unix.MS_RDONLY
		default:
			options = append(options, o)
		}
	}
	return proc.OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		if err := unix.Chdir(dir); err != nil { // the disks have relative paths, of which a page has room for more
			return &os.PathError{Op: "chdir", Path: dir, Err: err}
		}
		return mount(r.Overlay.Type, r.Overlay.Source, r.Path(app), flags, strings.Join(options, ","))
	})
}

// mountDisk mounts a disk.
func mountDisk(ctx context.Context, path string, d *channel.Disk) error {
	if err := needKind(d.Type); err != nil {
		return err
	}
	device, err := findDisk(ctx, d.Serial)
	if err != nil {
		return err
	}
	flags := uintptr(unix.MS_NODEV)
	if d.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	if err := mount(d.Type, device, path, flags, ""); err != nil {
		return err
	}
	return readLittleAhead(path)
}

// needKind loads a kind of file system, if the kernel does not have it.
func needKind(kind string) error {
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	if strings.Contains(string(known), "\t"+kind+"\n") { // Debian's kernel has ext4 without a module
		return nil
	}
	return loadLater(kind)
}

// findDisk waits until the disk with a serial number can be opened, and returns the path of its device.
func findDisk(ctx context.Context, serial string) (string, error) {
	if err := loadLater("virtio_blk"); err != nil {
		return "", err
	}
	found, err := newDevices(ctx)
	if err != nil {
		return "", err
	}
	defer found.close()
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
			return "", fmt.Errorf("disk %s: %w", serial, err)
		}
	}
}

// unmountRoot writes back and unmounts the disks of an app, if it has any. A disk that cannot be written back is unmounted all the
// same, because the host takes it away.
func unmountRoot(app string) error {
	dir := filepath.Join(channel.GuestDisks, app)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range slices.Backward(entries) { // the overlay's name is the last one
		path := filepath.Join(dir, e.Name())
		err = errors.Join(err, writeBack(path))
		if failed := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); failed != nil && failed != unix.EINVAL { // EINVAL: the mount has failed
			err = errors.Join(err, fmt.Errorf("unmount %s of app %s: %w", path, app, failed))
			continue
		}
		err = errors.Join(err, os.Remove(path))
	}
	return errors.Join(err, os.Remove(dir))
}

// writeBack writes back what a disk has cached. The last unmount does it as well, but that may be the one of a mount
// namespace that the kernel removes later.
func writeBack(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("write back %s: %w", path, err)
	}
	return nil
}

// unmountRoots unmounts the disks of all apps. None has a process.
func unmountRoots() error {
	entries, err := os.ReadDir(channel.GuestDisks)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, unmountRoot(e.Name()))
	}
	return err
}
