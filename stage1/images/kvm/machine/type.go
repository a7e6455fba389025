package machine

import (
	"cmp"
	"fmt"
	"strconv"
	"time"
	_ "unsafe" // for go:linkname
)

// Type is the type of QEMU's board.
type Type string

// A machine of the type Q35 gets devices, processors and memory while it runs. One of the type MicroVM keeps what it
// has booted with: it has no PCI bus, and of what is older than virtio only a serial port, a clock of the time of day, and
// fw_cfg, by which QEMU hands over the kernel.
const (
	Q35     Type = "q35"
	MicroVM Type = "microvm"
)

// FixedError is the error of a change that a machine of the type MicroVM cannot have.
type FixedError string

func (e FixedError) Error() string {
	return fmt.Sprintf("a machine of the type %s %s", MicroVM, string(e))
}

// checkType returns an error for what a machine of its type cannot have.
func (c *Config) checkType() error {
	switch cmp.Or(c.Type, Q35) {
	case Q35:
		if len(c.NICs) > 0 {
			return fmt.Errorf("it is of the type %s, and gets its network interfaces after its boot", Q35)
		}
	case MicroVM:
		switch {
		case c.Saved != "":
			return FixedError("cannot be saved")
		case c.MaxCPUs > c.CPUs:
			return FixedError("gets no processors after its boot")
		case c.MaxMemory > c.Memory:
			return FixedError("gets no memory after its boot")
		}
	default:
		return fmt.Errorf("there is no type %q: it is %s or %s", c.Type, Q35, MicroVM)
	}
	return nil
}

// board returns the value of QEMU's argument -machine, without what all types have.
func (t Type) board() string {
	if t == MicroVM {
		return "microvm,acpi=on,pit=off,pic=off" // without ACPI, Debian's kernel finds none of its devices
	}
	return "q35,vmport=off,smm=off,sata=off,smbus=off"
}

// virtio returns the name of QEMU's device of a kind, such as serial.
func (t Type) virtio(kind string) string {
	if t == MicroVM {
		return "virtio-" + kind + "-device"
	}
	return "virtio-" + kind + "-pci"
}

// addFixed adds the devices of a MicroVM that others get when QEMU runs.
func (m *machine) addFixed(l *commandLine) error {
	l.add("-global", "virtio-mmio.force-legacy=false") // virtiofs is not for old drivers
	for n := range m.config.Shares {
		s := &m.config.Shares[n]
		socket, err := m.startShare(n)
		if err != nil {
			return err
		}
		id := "share" + strconv.Itoa(n)
		l.add("-chardev", "socket,id="+id+",fd="+l.pass(socket))
		l.add("-device", "vhost-user-fs-device,chardev="+id+",tag="+s.Tag)
		l.peers = append(l.peers, socket)
	}
	for n, nic := range m.config.NICs {
		id := string(bootedNIC(n))
		device := m.config.Type.virtio("net") + ",netdev=" + id + ",mac=" + nic.MAC.String()
		if nic.MTU > 0 {
			device += ",host_mtu=" + strconv.Itoa(nic.MTU)
		}
		l.add("-netdev", "tap,id="+id+",fd="+l.pass(nic.Tap), "-device", device)
	}
	return nil
}

// bootedNIC is the device of a network interface of Config.
func bootedNIC(n int) Device { return Device("nic" + strconv.Itoa(n)) }

// findNIC returns the device of the network interface with which a MicroVM has booted in place of adding one.
func (m *machine) findNIC(nic NIC) (Device, error) {
	for n, have := range m.config.NICs {
		if have.Tap == nic.Tap {
			return bootedNIC(n), nil
		}
	}
	return "", FixedError("gets no network interface after its boot")
}

// clockTime is how long the processor's counter is compared with the clock.
const clockTime = 50 * time.Millisecond

// clockArgument returns the argument with which the kernel of an emulated MicroVM knows the rate of the processor's counter, which is
// the host's. The board has no other clock, with which the kernel could measure it.
func clockArgument() string {
	began, from := readCounter()
	time.Sleep(clockTime)
	ended, to := readCounter()
	return "tsc_early_khz=" + strconv.FormatInt((to-from)*int64(time.Millisecond)/int64(ended.Sub(began)), 10)
}

// readCounter returns what the processor's counter has at a time. Of some attempts it takes the one with the least time between
// two looks at the clock: in the others, the thread may have been interrupted.
func readCounter() (at time.Time, counter int64) {
	const attempts = 100
	least := time.Duration(-1)
	for range attempts {
		before := time.Now()
		c := cputicks()
		if took := time.Since(before); least < 0 || took < least {
			least, at, counter = took, before.Add(took/2), c
		}
	}
	return at, counter
}

// cputicks reads the processor's counter.
//
//go:linkname cputicks runtime.cputicks
func cputicks() int64
