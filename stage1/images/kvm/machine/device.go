package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
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

func port(n int) string { return "port" + strconv.Itoa(n) }

// device is a device while it is in the machine.
type device struct {
	port    int
	remove  func(context.Context) error // what is behind the device
	leaving bool                        // a RemoveDevice is in progress
}

// add plugs a device in. open makes what is behind the device and returns the properties of the
// device, and what removes it again.
func (m *machine) add(ctx context.Context, kind string, open func(id string) (map[string]any, func(context.Context) error, error)) (Device, error) {
	id, n, err := m.reserve(kind)
	if err != nil {
		return "", err
	}
	properties, remove, err := open(string(id))
	if err != nil {
		m.release(id)
		return "", err
	}
	m.mu.Lock()
	m.devices[id].remove = remove
	m.mu.Unlock()
	properties["id"], properties["bus"] = string(id), port(n)
	if err := m.qmp.execute(ctx, "device_add", properties, nil); err != nil {
		if ctx.Err() == nil { // QEMU has refused it. Without an answer the device may be there
			err = errors.Join(err, remove(ctx))
			m.release(id)
		}
		return "", err
	}
	return id, nil
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
	id, err := m.add(ctx, "nic", func(id string) (map[string]any, func(context.Context) error, error) {
		netdev := "net-" + id
		if err := m.qmp.executeWith(ctx, "getfd", map[string]any{"fdname": netdev}, nil, n.Tap); err != nil {
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
	})
	if err != nil {
		return "", fmt.Errorf("add a network interface: %w", err)
	}
	return id, nil
}

// maxSerial is the length of the serial number of a virtio disk.
const maxSerial = 20

func (m *machine) AddDisk(ctx context.Context, d Disk) (Device, error) {
	if len(d.Serial) > maxSerial || strings.ContainsRune(d.Serial, 0) {
		return "", fmt.Errorf("add a disk: the serial number %q is not possible", d.Serial)
	}
	info, err := d.File.Stat()
	if err != nil {
		return "", fmt.Errorf("add a disk: %w", err)
	}
	driver := "file"
	if info.Mode()&os.ModeDevice != 0 {
		driver = "host_device"
	}
	id, err := m.add(ctx, "disk", func(id string) (map[string]any, func(context.Context) error, error) {
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
		remove := func(ctx context.Context) error {
			return errors.Join(m.qmp.execute(ctx, "blockdev-del", map[string]any{"node-name": node}, nil), closeSet(ctx))
		}
		err := m.qmp.execute(ctx, "blockdev-add", map[string]any{
			"driver": driver, "node-name": node, "filename": "/dev/fdset/" + strconv.Itoa(set.ID),
			"read-only": d.ReadOnly, "locking": "off", "discard": "unmap",
		}, nil)
		if err != nil {
			return nil, nil, errors.Join(err, closeSet(ctx))
		}
		// The guest gets the error of a full disk. By default QEMU would stop it.
		return map[string]any{"driver": "virtio-blk-pci", "drive": node, "serial": d.Serial, "werror": "report", "rerror": "report"}, remove, nil
	})
	if err != nil {
		return "", fmt.Errorf("add a disk: %w", err)
	}
	return id, nil
}

func (m *machine) RemoveDevice(ctx context.Context, id Device) error {
	d, err := m.leave(id)
	if err == nil {
		if err = m.qmp.unplug(ctx, string(id)); err != nil {
			m.stay(id)
		} else {
			m.release(id)
			err = d.remove(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("remove device %s: %w", id, err)
	}
	return nil
}

// leave begins the removal of a device.
func (m *machine) leave(id Device) (*device, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.devices[id]
	switch {
	case d == nil || d.remove == nil:
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
