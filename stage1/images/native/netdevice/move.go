package netdevice

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/rtnetlink"
)

// Device is a network device to move.
type Device struct {
	Host   string // its name in this process's network namespace
	Inside string // its name in the other one; the kernel replaces "%d" by a number
}

// Moved are the devices that Move has moved. A nil Moved has no devices.
type Moved struct {
	home, there conn
	file        *os.File // this process's network namespace
	devices     []moved
}

type moved struct {
	Device
	device
	inside uint32 // its index in the other namespace
}

// Move moves devices from this process's network namespace to another one. If it fails, it
// has moved all devices back.
func Move(namespace *os.File, devices []Device) (_ *Moved, err error) {
	m := &Moved{}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Undo())
		}
	}()
	if m.file, err = os.Open("/proc/self/ns/net"); err != nil {
		return nil, err
	}
	if m.home.Conn, err = rtnetlink.Dial(); err != nil {
		return nil, err
	}
	if m.there.Conn, err = rtnetlink.DialIn(namespace); err != nil {
		return nil, err
	}
	found, err := m.look(devices)
	if err != nil {
		return nil, err
	}
	for _, d := range found {
		if err := m.move(d, int(namespace.Fd())); err != nil {
			return nil, fmt.Errorf("move the network device %s to the network namespace, as %s: %w", d.Host, d.Inside, err)
		}
	}
	return m, nil
}

// look finds the devices, and checks that their new names are free, before anything is
// changed.
func (m *Moved) look(devices []Device) (found []moved, err error) {
	for _, d := range devices {
		f := moved{Device: d}
		if f.device, err = m.home.find(d.Host); errors.Is(err, unix.ENODEV) {
			return nil, fmt.Errorf("there is no network device %s on the host", d.Host)
		}
		if err == nil {
			err = m.home.keep(&f.device)
		}
		if err != nil {
			return nil, fmt.Errorf("look up the network device %s: %w", d.Host, err)
		}
		found = append(found, f)
		if strings.Contains(d.Inside, "%") {
			continue
		}
		if _, err := m.there.find(d.Inside); err == nil {
			return nil, fmt.Errorf("the network namespace has a network device %s already", d.Inside)
		} else if !errors.Is(err, unix.ENODEV) {
			return nil, fmt.Errorf("look up the network device %s in the network namespace: %w", d.Inside, err)
		}
	}
	return found, nil
}

func (m *Moved) move(d moved, namespace int) (err error) {
	d.inside, err = m.home.move(d.index, d.index, m.there, namespace, d.Inside)
	// The kernel first moves a device and then renames it. If another process has taken the
	// name meanwhile, the device is in the other namespace in spite of the error.
	if err == nil || !m.home.has(d.index) {
		m.devices = append(m.devices, d)
	}
	if err != nil {
		return err
	}
	return m.there.settle(d.inside, d.device, true)
}

// Undo moves the devices back, with their old names, addresses and states, and closes m.
// Call it when the app has no process any more. A device that a process of the app has
// moved or removed is lost.
func (m *Moved) Undo() (err error) {
	if m == nil {
		return nil
	}
	defer m.Close()
	for _, d := range m.devices {
		index, failed := m.there.move(d.inside, d.index, m.home, int(m.file.Fd()), d.Host)
		if failed == nil {
			failed = m.home.settle(index, d.device, d.up)
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("move the network device %s back: %w", d.Host, failed))
		}
	}
	return err
}

// Close releases what Undo needs. It keeps no network namespace alive after that.
func (m *Moved) Close() {
	if m == nil {
		return
	}
	m.devices = nil
	m.file.Close()
	for _, c := range []conn{m.home, m.there} {
		if c.Conn != nil {
			c.Close()
		}
	}
	m.home, m.there = conn{}, conn{}
}

// text returns an address for an error.
func text(address []byte) string {
	for kind, value := range rtnetlink.Attributes(address[unix.SizeofIfAddrmsg:]) {
		switch {
		case kind != unix.IFA_ADDRESS:
		case len(value) == 4:
			return fmt.Sprintf("%d.%d.%d.%d/%d", value[0], value[1], value[2], value[3], address[1])
		default:
			return fmt.Sprintf("%x/%d", value, address[1])
		}
	}
	return "of no value"
}
