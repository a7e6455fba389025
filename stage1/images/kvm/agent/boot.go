package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// modules is the directory of the initramfs that has the modules.
const modules = "/modules"

// boot makes a usable system of the initramfs, and returns the port of the channel.
func boot() (*os.File, error) {
	if err := leaveInitramfs(); err != nil {
		return nil, err
	}
	for _, m := range []struct {
		kind, target, data string
		flags              uintptr
	}{
		{"proc", "/proc", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"sysfs", "/sys", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"devtmpfs", "/dev", "mode=0755", unix.MS_NOSUID},
		{"devpts", "/dev/pts", "ptmxmode=0666,mode=0620", unix.MS_NOSUID | unix.MS_NOEXEC},
		{"tmpfs", "/dev/shm", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
		{"tmpfs", "/run", "mode=0755", unix.MS_NOSUID | unix.MS_NODEV},
		{"tmpfs", "/tmp", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
		{"cgroup2", "/sys/fs/cgroup", "", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	} {
		if err := mount(m.kind, m.kind, m.target, m.flags, m.data); err != nil {
			return nil, err
		}
	}
	if err := raiseBounds(); err != nil {
		return nil, err
	}
	found, err := newDevices(context.Background())
	if err != nil {
		return nil, err
	}
	defer found.close()
	if err := loadModules(); err != nil {
		return nil, err
	}
	if err := loopbackUp(); err != nil {
		return nil, err
	}
	return openPort(found, channel.PortName)
}

// join mounts what the machine has of its pod, whose shares the host may plug in at the same time.
func join() error {
	found, err := newDevices(context.Background())
	if err != nil {
		return err
	}
	defer found.close()
	for tag, target := range map[string]string{channel.RootsTag: channel.GuestRoots, channel.ShareTag: channel.GuestShare} {
		err := mount("virtiofs", tag, target, unix.MS_NODEV, "")
		for errors.Is(err, unix.EINVAL) { // the kernel knows no such share yet
			if err := found.next(); err != nil {
				return err
			}
			err = mount("virtiofs", tag, target, unix.MS_NODEV, "")
		}
		if err != nil {
			return err
		}
	}
	return readLittleAhead(channel.GuestRoots)
}

func mount(kind, source, target string, flags uintptr, data string) error {
	if err := os.MkdirAll(target, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	err := unix.Mount(source, target, kind, flags, data)
	if err == unix.EBUSY && kind == "devtmpfs" {
		return nil // the kernel has mounted it
	}
	if err != nil {
		return fmt.Errorf("mount %s at %s: %w", kind, target, err)
	}
	return nil
}

// raiseBounds raises the bounds of the kernel of which the limits of apps are a part, as systemd does on a host. A limit
// of the host's above nr_open could not be set. The kernel derives the others from the memory and the processors of
// the boot, and the VM may grow. Memory remains the bound of the VM, and `pids` that of an app.
func raiseBounds() error {
	for name, value := range map[string]string{
		"fs/nr_open":         "2147483584", // the most that the kernel allows
		"fs/file-max":        "9223372036854775807",
		"kernel/threads-max": mostProcesses,
		"kernel/pid_max":     mostProcesses,
	} {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
			return fmt.Errorf("raise a bound: %w", err)
		}
	}
	return nil
}

// mostProcesses is the kernel's bound of pid_max, and channel.MaxPID.
const mostProcesses = "4194304"

// leaveInitramfs puts a mount above the initramfs, because pivot_root(2), which containers
// need, refuses the first mount of all as the old root.
func leaveInitramfs() error {
	const root = "/root"
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("/", root, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind the initramfs: %w", err)
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return os.Chdir("/")
}

// loadModules loads the modules of the initramfs in their order.
func loadModules() error {
	order, err := os.ReadFile(filepath.Join(modules, "order"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(order)) {
		if err := loadModule(filepath.Join(modules, name)); err != nil {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}

// loadLater loads a module that not every machine needs. Its line in the list has the files before it.
func loadLater(module string) error {
	list, err := os.ReadFile(filepath.Join(modules, "later"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(list)) {
		files := strings.Fields(line)
		if len(files) == 0 || files[len(files)-1] != module+".ko" {
			continue
		}
		for _, f := range files {
			if err := loadModule(filepath.Join(modules, f)); err != nil {
				return fmt.Errorf("load %s: %w", f, err)
			}
		}
		return nil
	}
	return fmt.Errorf("the machine has no module %s", module)
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && err != unix.EEXIST {
		return err
	}
	return nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket: %w", err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}

// forgetFiles drops the names and inodes that nothing uses. While the guest knows a file of an
// app that was removed, virtiofsd keeps it open, and its blocks are not free.
func forgetFiles() { _ = os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0) }

// deviceTime is how long the kernel may take to find a device that the host has plugged in. An emulated machine on a
// busy host takes a minute.
const deviceTime = 5 * time.Minute

// devices hears of the devices that the kernel finds.
type devices struct {
	*os.File
	ctx  context.Context
	stop context.CancelFunc
}

// newDevices begins to listen, until ctx ends or deviceTime has passed. Devices that are found later are events.
func newDevices(ctx context.Context) (*devices, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err == nil {
		if err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listen for devices: %w", err)
	}
	d := &devices{File: os.NewFile(uintptr(fd), "devices")}
	d.ctx, d.stop = context.WithTimeoutCause(ctx, deviceTime, fmt.Errorf("it is not there after %s", deviceTime))
	context.AfterFunc(d.ctx, func() { d.File.Close() })
	return d, nil
}

// next waits for the next event. One that was lost is an event, too.
func (d *devices) next() error {
	_, err := d.Read(make([]byte, 4096))
	switch {
	case err == nil || errors.Is(err, unix.ENOBUFS):
		return nil
	case d.ctx.Err() != nil:
		err = context.Cause(d.ctx)
	}
	return fmt.Errorf("wait for a device: %w", err)
}

// close ends the listening.
func (d *devices) close() { d.stop() }

// openPort opens the virtio-serial port of a name. The host tells the guest of its ports after
// the module was loaded.
func openPort(found *devices, name string) (*os.File, error) {
	for {
		ports, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, p := range ports {
			got, err := os.ReadFile(p)
			if err != nil || strings.TrimSpace(string(got)) != name {
				continue
			}
			fd, err := unix.Open(filepath.Join("/dev", filepath.Base(filepath.Dir(p))), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
			if err != nil {
				return nil, fmt.Errorf("open the channel: %w", err)
			}
			if err := channel.AwaitHost(fd); err != nil {
				unix.Close(fd)
				return nil, err
			}
			return os.NewFile(uintptr(fd), "the channel"), nil
		}
		if err := found.next(); err != nil {
			return nil, err
		}
	}
}

// powerOff ends the machine. The host's program does not reboot. What the disks of apps have cached was written back before, and a
// sync(2) here would have virtiofsd write back everything that the host has cached.
func powerOff() {
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	os.Exit(1)
}
