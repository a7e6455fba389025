package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// volume is a block device of the host that an app asks for.
type volume struct {
	channel.Volume
	field    string // of the spec, which asks for it
	readOnly bool
}

// volumeDisk is a block device of the host as a disk of the machine. The apps that have asked for it share
// it: with two disks of one device, the guest would have its content twice in memory.
type volumeDisk struct {
	disk
	number uint64
	users  int
}

// volume adds a block device of the host to the spec.
func (t *translated) volume(app string, major, minor uint32) *volume {
	v := &volume{Volume: channel.Volume{Node: channel.NodeOf(app, len(t.volumes)), Major: int64(major), Minor: int64(minor)}}
	t.volumes = append(t.volumes, v)
	return v
}

// blockDevice returns the attributes of a node of a block device, or nil if a path leads to none.
func blockDevice(path string) *unix.Stat_t {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return nil
	}
	return &st
}

// everywhere are the character devices that mean the same in every kernel, by major and minor.
var everywhere = [][2]int64{{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}} // null, zero, full, random, urandom, tty

// defaultNode is the mode of a device whose spec has none.
const defaultNode = 0o666

// translateDevices makes the block devices of linux.devices volumes of the app, which are mounted at their
// paths, and refuses other devices of the host.
func translateDevices(app string, t *translated) error {
	var stay []specs.LinuxDevice
	for i, d := range t.Linux.Devices {
		switch {
		case d.Type == "p" || (d.Type == "c" || d.Type == "u") && slices.Contains(everywhere, [2]int64{d.Major, d.Minor}):
			stay = append(stay, d)
			continue
		case d.Type != "b":
			return serve.Unsupported("linux.devices[%d]: %s is a device of type %q of the host, and a machine can have its block devices only", i, d.Path, d.Type)
		case d.Major < 0 || d.Minor < 0 || !filepath.IsAbs(d.Path):
			return fmt.Errorf("linux.devices[%d]: %s, block device %d:%d, cannot exist", i, d.Path, d.Major, d.Minor)
		}
		v := t.volume(app, uint32(d.Major), uint32(d.Minor))
		v.field, v.Mode = fmt.Sprintf("linux.devices[%d]", i), defaultNode
		if d.FileMode != nil {
			v.Mode = uint32(*d.FileMode) & 0o7777 // clients write the number for chmod(1)
		}
		if d.UID != nil {
			v.UID = *d.UID
		}
		if d.GID != nil {
			v.GID = *d.GID
		}
		t.Mounts = append(t.Mounts, specs.Mount{Destination: d.Path, Type: "bind", Source: v.Node, Options: []string{"bind"}})
	}
	t.Linux.Devices = stay
	if t.Linux.Resources == nil {
		return t.translateRules(nil)
	}
	return t.translateRules(t.Linux.Resources.Devices)
}

// translateRules makes the volumes read-only that the rules of access do not let the app write. The agent
// translates the numbers of the rules.
func (t *translated) translateRules(rules []specs.LinuxDeviceCgroup) error {
	for _, v := range t.volumes {
		v.readOnly = v.readOnly || !mayWrite(&v.Volume, rules)
	}
	for i, r := range rules {
		switch {
		case channel.NamesBoth(&r):
			return serve.Unsupported("linux.resources.devices[%d]: a rule for a number of block and of character devices: a machine has other numbers: make it two rules, with the types b and c", i)
		case r.Allow && r.Type != "b" && r.Major != nil && isDynamic(*r.Major) && strings.ContainsAny(r.Access, "rw"):
			return serve.Unsupported("linux.resources.devices[%d]: the kernels of host and machine give the major number %d to different devices", i, *r.Major)
		}
		named := func(v *volume) bool { return v.NamedBy(&r) }
		if r.Allow && channel.NamesBlocks(&r) && strings.ContainsAny(r.Access, "rw") && !slices.ContainsFunc(t.volumes, named) {
			return serve.Unsupported("linux.resources.devices[%d]: the app has no block device of the host with this number, and those of a machine have others", i)
		}
	}
	return nil
}

// isDynamic reports whether a kernel gives a major number of character devices to whatever driver asks first:
// Documentation/admin-guide/devices.txt of Linux.
func isDynamic(major int64) bool { return major >= 234 && major <= 254 || major >= 384 && major <= 511 }

// mayWrite reports whether rules of access let an app write a block device. The last rule counts, and
// without one nothing is allowed.
func mayWrite(v *channel.Volume, rules []specs.LinuxDeviceCgroup) bool {
	for _, r := range slices.Backward(rules) {
		all := r.Type == "" || r.Type == "a"
		if (all || r.Type == "b" && v.NamedBy(&r)) && strings.Contains(r.Access, "w") {
			return r.Allow
		}
	}
	return false
}

// attach makes the volumes of an app disks of the machine. detach takes them back, also after an error.
func (s *Supervisor) attach(ctx context.Context, a *app, list []*volume) error {
	if len(list) == 0 {
		return nil
	}
	select {
	case s.plugging <- struct{}{}:
		defer func() { <-s.plugging }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, v := range list {
		d, err := s.diskOf(ctx, v)
		if err != nil {
			return fmt.Errorf("%s: %w", v.field, err)
		}
		d.users++
		a.volumes = append(a.volumes, d)
		v.Serial = d.Serial
	}
	return nil
}

// diskOf returns the disk of a volume. The caller has the turn of plugging.
func (s *Supervisor) diskOf(ctx context.Context, v *volume) (*volumeDisk, error) {
	number := unix.Mkdev(uint32(v.Major), uint32(v.Minor))
	if d := s.volumes[number]; d != nil {
		if d.ReadOnly && !v.readOnly {
			return nil, serve.Precondition("block device %d:%d: another app of the pod has it, and only reads it", v.Major, v.Minor)
		}
		return d, nil
	}
	file, err := openDevice(number, v.readOnly)
	if err != nil {
		return nil, err
	}
	d := &volumeDisk{disk: disk{Disk: channel.Disk{ReadOnly: v.readOnly}, file: file}, number: number}
	if err := s.plug(ctx, &d.disk); err != nil {
		file.Close()
		return nil, err
	}
	s.volumes[number] = d
	return d, nil
}

// detach removes the disks that only a removed app had.
func (s *Supervisor) detach(a *app) {
	if len(a.volumes) == 0 {
		return
	}
	s.plugging <- struct{}{}
	defer func() { <-s.plugging }()
	for _, d := range a.volumes {
		if d.users--; d.users == 0 {
			delete(s.volumes, d.number)
			s.unplug(&d.disk)
		}
	}
	a.volumes = nil
}

// openDevice opens a block device of the host by its number. The kernel gives it to one user with O_EXCL:
// another one may be a mount of the host, or another machine. There is no lock, because udev takes one for a
// moment whenever a device has changed; and the host may have a loop device of it, as the kubelet does in
// order to keep the device.
func openDevice(number uint64, readOnly bool) (*os.File, error) {
	id := fmt.Sprintf("%d:%d", unix.Major(number), unix.Minor(number))
	text, err := os.ReadFile(filepath.Join("/sys/dev/block", id, "uevent"))
	if err != nil {
		return nil, fmt.Errorf("the host has no block device %s: %w", id, err)
	}
	name := ""
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "DEVNAME="); ok {
			name = strings.TrimSuffix(value, "\n")
		}
	}
	path := filepath.Join("/dev", name)
	file, err := os.OpenFile(path, access(readOnly)|unix.O_EXCL|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.EBUSY):
		return nil, serve.Precondition("block device %s: the host or another machine uses it", id)
	case err != nil:
		return nil, fmt.Errorf("block device %s: %w", id, err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(file.Fd()), &st); err == nil && (st.Mode&unix.S_IFMT != unix.S_IFBLK || st.Rdev != number) {
		err = fmt.Errorf("%s is not block device %s", path, id)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}
