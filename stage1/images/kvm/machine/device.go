package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Device is a device that was added to a machine. No two devices of a machine are equal.
type Device string

// NIC is a network interface. QEMU gets a copy of the descriptor of the tap, which must have been made
// with IFF_NO_PI and IFF_VNET_HDR, and with one queue.
type NIC struct {
	Tap *os.File
	MAC net.HardwareAddr
	MTU int // of the link; 0 is the guest's default
}

// Disk is a disk with the content of a file or block device. QEMU gets a copy of the descriptor.
type Disk struct {
	File     *os.File // open for reading and writing, or only for reading if ReadOnly
	ReadOnly bool
	Serial   string // by which the guest finds it: /sys/block/vd*/serial, at most 20 characters
}

// ports is how many devices can be added. Each needs a port of its own on the bus, which a machine
// has from its boot.
const ports = 8

// MaxDisks is how many disks AddDisks adds at most: a device has that many functions.
const MaxDisks = 8

func port(n int) string { return "port" + strconv.Itoa(n) }

// device is a device while it is in the machine.
type device struct {
	port      int
	functions []function // the guest sees the device with the first one; none while it is being added
	leaving   bool       // a RemoveDevice is in progress
}

// function is a function of a device: a disk, or the only one of a network interface.
type function struct {
	id     string
	remove func(context.Context) error // what is behind it
}

// backend is what is behind a function.
type backend struct {
	file *os.File // for QEMU; add closes it
	// open makes the backend, and returns the properties of the function and what removes the backend again.
	open func(ctx context.Context, id string) (properties map[string]any, remove func(context.Context) error, err error)
}

// qemuTime is how long QEMU may take for a change of the machine, and undoTime how long for its undo, which the guest may
// have to allow.
const (
	qemuTime = time.Minute
	undoTime = time.Minute
)

// limited returns the context of a change of the machine.
func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, qemuTime, fmt.Errorf("QEMU has not done it within %s", qemuTime))
}

// add plugs a device in. files are those that the backends send to QEMU.
//
// If ctx ends, QEMU may be at work on a command. plug then goes on without the caller, with copies of the files: it
// applies QEMU's answer, or ends with QEMU. The port is taken until then.
func (m *machine) add(ctx context.Context, kind string, backends ...backend) (Device, error) {
	id, n, err := m.reserve(kind)
	if err != nil {
		closeFiles(backends)
		return "", err
	}
	ctx, cancel := limited(ctx)
	defer cancel()
	answered := make(chan error)
	left := make(chan struct{})
	go func() {
		err := m.plug(context.WithoutCancel(ctx), id, n, backends)
		closeFiles(backends)
		select {
		case answered <- err:
		case <-left:
			if err == nil {
				m.takeBack(id)
			}
		}
	}()
	select {
	case err = <-answered:
	case <-ctx.Done():
		close(left)
		err = context.Cause(ctx)
	}
	if err != nil {
		return "", err
	}
	return id, nil
}

func closeFiles(backends []backend) {
	for _, b := range backends {
		b.file.Close()
	}
}

// takeBack removes a device whose caller has left. If the guest keeps it, it keeps its port, too.
func (m *machine) takeBack(id Device) {
	ctx, cancel := context.WithTimeout(context.Background(), undoTime)
	defer cancel()
	if err := m.RemoveDevice(ctx, id); err != nil && !closed(m.qmp.done) {
		fmt.Fprintf(m.config.Log, "a device that is no longer wanted: %v\n", err)
	}
}

// plug plugs a reserved device in. The guest looks for it when its first function is there, so that is added last. After an error
// nothing of it is left.
func (m *machine) plug(ctx context.Context, id Device, n int, backends []backend) (err error) {
	functions := make([]function, len(backends))
	for i := len(backends) - 1; i >= 0; i-- {
		f := &functions[i]
		f.id = string(id)
		if i > 0 {
			f.id += "-" + strconv.Itoa(i)
		}
		var properties map[string]any
		if properties, f.remove, err = backends[i].open(ctx, f.id); err == nil {
			properties["id"], properties["bus"] = f.id, port(n)
			if len(backends) > 1 {
				properties["addr"], properties["multifunction"] = "0."+strconv.Itoa(i), true
			}
			if err = m.qmp.execute(ctx, "device_add", properties, nil); err == nil {
				continue
			}
			err = errors.Join(err, f.remove(ctx))
		}
		for _, added := range functions[i+1:] { // the guest does not know of them
			err = errors.Join(err, m.qmp.unplug(ctx, added.id), added.remove(ctx))
		}
		m.release(id)
		return err
	}
	m.mu.Lock()
	m.devices[id].functions = functions
	m.mu.Unlock()
	return nil
}

// reserve returns the id of a new device and its port.
func (m *machine) reserve(kind string) (Device, int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, taken := range m.ports {
		if !taken {
			id := Device(kind + strconv.Itoa(m.added))
			m.added++
			m.ports[n], m.devices[id] = true, &device{port: n}
			return id, n, nil
		}
	}
	return "", 0, fmt.Errorf("the machine has %d devices already, and no port for another one", ports)
}

func (m *machine) release(id Device) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ports[m.devices[id].port] = false
	delete(m.devices, id)
}

func (m *machine) AddNIC(ctx context.Context, n NIC) (Device, error) {
	if m.config.Type == MicroVM {
		return m.findNIC(n)
	}
	tap, err := proc.Duplicate(n.Tap)
	if err != nil {
		return "", fmt.Errorf("add a network interface: %w", err)
	}
	id, err := m.add(ctx, "nic", backend{tap, func(ctx context.Context, id string) (map[string]any, func(context.Context) error, error) {
		netdev := "net-" + id
		if err := m.qmp.executeWith(ctx, "getfd", map[string]any{"fdname": netdev}, nil, tap); err != nil {
			return nil, nil, err
		}
		remove := func(ctx context.Context) error {
			return m.qmp.execute(ctx, "netdev_del", map[string]any{"id": netdev}, nil)
		}
		// QEMU takes the descriptor from the name.
		if err := m.qmp.execute(ctx, "netdev_add", map[string]any{"type": "tap", "id": netdev, "fd": netdev}, nil); err != nil {
			return nil, nil, errors.Join(err, m.qmp.execute(ctx, "closefd", map[string]any{"fdname": netdev}, nil))
		}
		properties := map[string]any{"driver": "virtio-net-pci", "netdev": netdev, "mac": n.MAC.String(), "romfile": ""}
		if n.MTU > 0 {
			properties["host_mtu"] = n.MTU
		}
		return properties, remove, nil
	}})
	if err != nil {
		return "", fmt.Errorf("add a network interface: %w", err)
	}
	return id, nil
}

// maxSerial is the length of the serial number of a virtio disk.
const maxSerial = 20

func (m *machine) AddDisks(ctx context.Context, disks ...Disk) (Device, error) {
	if m.config.Type == MicroVM {
		return "", FixedError("has no disks")
	}
	if len(disks) == 0 || len(disks) > MaxDisks {
		return "", fmt.Errorf("add disks: a device has 1 to %d, and not %d", MaxDisks, len(disks))
	}
	var backends []backend
	for _, d := range disks {
		if len(d.Serial) > maxSerial || strings.ContainsRune(d.Serial, 0) {
			return "", fmt.Errorf("add a disk: the serial number %q is not possible", d.Serial)
		}
		own, err := proc.Duplicate(d.File)
		if err != nil {
			closeFiles(backends)
			return "", fmt.Errorf("add a disk: %w", err)
		}
		d.File = own
		backends = append(backends, backend{own, func(ctx context.Context, id string) (map[string]any, func(context.Context) error, error) {
			return m.openDisk(ctx, id, d)
		}})
	}
	id, err := m.add(ctx, "disk", backends...)
	if err != nil {
		return "", fmt.Errorf("add a disk: %w", err)
	}
	return id, nil
}

// openDisk is the backend of a disk.
func (m *machine) openDisk(ctx context.Context, id string, d Disk) (properties map[string]any, remove func(context.Context) error, err error) {
	info, err := d.File.Stat()
	if err != nil {
		return nil, nil, err
	}
	driver := "file"
	if info.Mode()&os.ModeDevice != 0 {
		driver = "host_device"
	}
	var set struct {
		ID int `json:"fdset-id"`
	}
	if err := m.qmp.executeWith(ctx, "add-fd", map[string]any{}, &set, d.File); err != nil {
		return nil, nil, err
	}
	node := "node-" + id
	closeSet := func(ctx context.Context) error {
		return m.qmp.execute(ctx, "remove-fd", map[string]any{"fdset-id": set.ID}, nil)
	}
	err = m.qmp.execute(ctx, "blockdev-add", map[string]any{
		"driver": driver, "node-name": node, "filename": "/dev/fdset/" + strconv.Itoa(set.ID),
		"read-only": d.ReadOnly, "locking": "off", "discard": "unmap",
	}, nil)
	if err != nil {
		return nil, nil, errors.Join(err, closeSet(ctx))
	}
	remove = func(ctx context.Context) error {
		return errors.Join(m.qmp.execute(ctx, "blockdev-del", map[string]any{"node-name": node}, nil), closeSet(ctx))
	}
	// The guest gets the error of a full disk. By default QEMU would stop it.
	return map[string]any{"driver": "virtio-blk-pci", "drive": node, "serial": d.Serial, "werror": "report", "rerror": "report"}, remove, nil
}

func (m *machine) RemoveDevice(ctx context.Context, id Device) error {
	if m.config.Type == MicroVM {
		return FixedError("keeps the network interfaces with which it has booted")
	}
	d, err := m.leave(id)
	if err == nil {
		err = m.unplug(ctx, id, d)
	}
	if err != nil {
		return fmt.Errorf("remove device %s: %w", id, err)
	}
	return nil
}

// unplug removes a device. If the guest keeps it, the device stays, and can be removed later. What is behind it is removed
// also if ctx ends.
func (m *machine) unplug(ctx context.Context, id Device, d *device) error {
	waiting, cancel := limited(ctx)
	defer cancel()
	var ids []string
	for _, f := range d.functions {
		ids = append(ids, f.id)
	}
	if err := m.qmp.unplug(waiting, ids...); err != nil {
		m.stay(id)
		return err
	}
	m.release(id)
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	var err error
	for _, f := range d.functions {
		err = errors.Join(err, f.remove(undo))
	}
	return err
}

// leave begins the removal of a device.
func (m *machine) leave(id Device) (*device, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.devices[id]
	switch {
	case d == nil || d.functions == nil:
		return nil, errors.New("the machine has no such device")
	case d.leaving:
		return nil, errors.New("it is being removed")
	}
	d.leaving = true
	return d, nil
}

// stay ends the removal of a device that is still there.
func (m *machine) stay(id Device) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.devices[id].leaving = false
}
