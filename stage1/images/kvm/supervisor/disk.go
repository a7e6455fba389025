package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
)

// Disks is a machine that can get and lose disks while it runs.
type Disks interface {
	AddDisks(context.Context, ...machine.Disk) (machine.Device, error)
	RemoveDevice(context.Context, machine.Device) error
}

// diskTypes are the file systems of disks that the guest's kernel mounts.
var diskTypes = []string{"ext4", "erofs"}

// disk is a disk of the machine: the root of an app, or a volume.
type disk struct {
	channel.Disk
	file   *os.File       // locked while the machine may use it, because QEMU has a copy of the descriptor
	device machine.Device // of this disk and those that were plugged in with it; "" if it is one of the latter
}

// overlayOptions are the options of an overlay, without their values, that are the guest's kernel's alone.
var overlayOptions = []string{"lowerdir", "upperdir", "workdir", "ro", "rw", "index", "metacopy", "redirect_dir", "userxattr", "volatile", "xino"}

// makeRoot makes the root of an app of disks. unplug takes them back, also after an error.
func (s *Supervisor) makeRoot(ctx context.Context, a *app, mounts []abi.Mount) error {
	made := &channel.Root{}
	if last := len(mounts) - 1; last > 0 {
		made.Overlay = &mounts[last]
		for _, o := range made.Overlay.Options {
			if name, _, _ := strings.Cut(o, "="); !slices.Contains(overlayOptions, name) {
				return serve.Unsupported("the root is an overlay with the option %q, which an overlay of a machine cannot have", o)
			}
		}
		mounts = mounts[:last]
	}
	for i := range mounts {
		d, err := openDisk(&mounts[i])
		if err != nil {
			return err
		}
		a.disks = append(a.disks, d)
	}
	if err := s.plug(ctx, a.disks...); err != nil {
		return err
	}
	for _, d := range a.disks {
		made.Disks = append(made.Disks, d.Disk)
	}
	a.made = made
	return nil
}

// openDisk opens the image or block device of a root. Two kernels must not use a file system that one
// of them writes, so it fails if another machine or the host does.
func openDisk(m *abi.Mount) (d *disk, err error) {
	d = &disk{Disk: channel.Disk{Type: m.Type}}
	if !slices.Contains(diskTypes, m.Type) {
		return nil, serve.Unsupported("the root is of type %s; a disk of a machine can have %s", m.Type, strings.Join(diskTypes, " or "))
	}
	for _, o := range m.Options {
		switch o {
		case "ro":
			d.ReadOnly = true
		case "rw", "loop":
		default:
			return nil, serve.Unsupported("the root has the option %q, which a disk of a machine cannot have", o)
		}
	}
	d.ReadOnly = d.ReadOnly || m.Type == "erofs"
	flags, lock := access(d.ReadOnly), unix.LOCK_EX
	if d.ReadOnly {
		lock = unix.LOCK_SH
	}
	// O_EXCL: the kernel gives a block device to one user, which may be a mount.
	if d.file, err = os.OpenFile(m.Source, flags|unix.O_EXCL|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open the root: %w", err)
	}
	// Stage 0 locks what it mounts, and other programs of the host do not.
	locked := unix.Flock(int(d.file.Fd()), lock|unix.LOCK_NB)
	if err = notByHost(d.file, d.ReadOnly); err == nil {
		err = locked
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = serve.Precondition("the root %s: another machine uses it", m.Source)
	}
	if err != nil {
		d.file.Close()
		return nil, err
	}
	return d, nil
}

func access(readOnly bool) int {
	if readOnly {
		return os.O_RDONLY
	}
	return os.O_RDWR
}

// notByHost returns an error if a loop device of the host has the file of a disk, unless both only
// read it.
func notByHost(file *os.File, readOnly bool) error {
	own, err := file.Stat()
	if err != nil {
		return err
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	for _, path := range loops {
		name, err := os.ReadFile(path)
		if err != nil {
			continue // it has no file any more
		}
		st, err := os.Stat(strings.TrimSuffix(string(name), "\n"))
		if err != nil || !os.SameFile(st, own) {
			continue
		}
		device := filepath.Dir(filepath.Dir(path))
		ro, _ := os.ReadFile(filepath.Join(device, "ro"))
		if !readOnly || string(ro) != "1\n" {
			return serve.Precondition("the root %s: the host uses it as /dev/%s", file.Name(), filepath.Base(device))
		}
	}
	return nil
}

// plug adds disks to the machine, with as few devices as possible.
func (s *Supervisor) plug(ctx context.Context, disks ...*disk) (err error) {
	for together := range slices.Chunk(disks, machine.MaxDisks) {
		var device []machine.Disk
		s.mu.Lock()
		for _, d := range together {
			s.disks++
			d.Serial = fmt.Sprintf("disk-%d", s.disks)
			device = append(device, machine.Disk{File: d.file, ReadOnly: d.ReadOnly, Serial: d.Serial})
		}
		s.mu.Unlock()
		if together[0].device, err = s.Disks.AddDisks(ctx, device...); err != nil {
			if isFixed(err) {
				err = serve.Unsupported("the disk %s: %v", together[0].file.Name(), err)
			}
			return err
		}
	}
	return nil
}

// unplug removes disks, which the guest no longer uses. It does not wait long for a guest that is slow. What the guest keeps stays locked
// until the machine ends.
func (s *Supervisor) unplug(disks ...*disk) {
	removed := make(chan struct{})
	go func() {
		defer close(removed)
		for _, d := range disks {
			if d.device == "" {
				continue
			}
			if err := s.Disks.RemoveDevice(s.ctx, d.device); err != nil && s.ctx.Err() == nil {
				fmt.Fprintf(s.Log, "remove the disk %s: %v\n", d.file.Name(), err)
			}
		}
		for _, d := range disks {
			_ = d.file.Close()
		}
	}()
	select {
	case <-removed:
	case <-time.After(patience):
	}
}
