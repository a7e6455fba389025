package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
)

// Disks is a machine that can get and lose disks while it runs.
type Disks interface {
	AddDisk(context.Context, machine.Disk) (machine.Device, error)
	RemoveDevice(context.Context, machine.Device) error
}

// diskTypes are the file systems of disks that the guest's kernel mounts.
var diskTypes = []string{"ext4", "erofs"}

// disk is a disk of the machine: the root of an app, or a volume.
type disk struct {
	channel.Disk
	file   *os.File // locked while the machine may use it, because QEMU has a copy of the descriptor
	device machine.Device
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
	if err = unix.Flock(int(d.file.Fd()), lock|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		err = serve.Precondition("the root %s: another machine uses it", m.Source)
	}
	if err == nil {
		err = notByHost(d.file, d.ReadOnly)
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

// plug adds a disk to the machine.
func (s *Supervisor) plug(ctx context.Context, d *disk) (err error) {
	s.mu.Lock()
	s.disks++
	d.Serial = fmt.Sprintf("disk-%d", s.disks)
	s.mu.Unlock()
	d.device, err = s.Disks.AddDisk(ctx, machine.Disk{File: d.file, ReadOnly: d.ReadOnly, Serial: d.Serial})
	return err
}

// unplug removes a disk, which the guest no longer uses. If the guest keeps it, it stays
// locked until the machine ends.
func (s *Supervisor) unplug(d *disk) {
	if d == nil {
		return
	}
	if d.device != "" {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Disks.RemoveDevice(ctx, d.device); err != nil {
			fmt.Fprintf(s.Log, "remove the disk %s: %v\n", d.file.Name(), err)
		}
	}
	_ = d.file.Close()
}
