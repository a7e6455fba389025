// Command guest is the first process of the machines of bareboot. It loads the modules that the
// channel needs, writes a line to the channel, and waits.
package main

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const portName = "org.rkt.agent"

func main() {
	if err := run(); err != nil {
		_, _ = os.Stderr.WriteString("guest: " + err.Error() + "\n")
	}
	// The end of the first process is a panic of the kernel, which ends the machine.
}

func run() error {
	for _, m := range []struct{ kind, target string }{{"devtmpfs", "/dev"}, {"sysfs", "/sys"}} {
		if err := os.Mkdir(m.target, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := unix.Mount(m.kind, m.target, m.kind, 0, ""); err != nil && err != unix.EBUSY {
			return err
		}
	}
	events, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return err
	}
	if err := unix.Bind(events, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		return err
	}
	if err := loadModules(); err != nil {
		return err
	}
	port, err := openPort(events)
	if err != nil {
		return err
	}
	// The kernel waits until the host has opened its end.
	if _, err := unix.Write(port, []byte("up\n")); err != nil {
		return err
	}
	for {
		_ = unix.Pause() // Go takes a select without a case for a deadlock
	}
}

// loadModules loads the modules of the initramfs, in their order, up to the one of the channel.
func loadModules() error {
	order, err := os.ReadFile("/modules/order")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(order)) {
		fd, err := unix.Open("/modules/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		err = unix.FinitModule(fd, "", 0)
		unix.Close(fd)
		if err != nil {
			return err
		}
		if name == "virtio_console.ko" {
			break
		}
	}
	return nil
}

// openPort opens the port of the channel. The host tells the guest of its ports after the module was
// loaded, which is an event.
func openPort(events int) (int, error) {
	const dir = "/sys/class/virtio-ports"
	for {
		ports, _ := os.ReadDir(dir)
		for _, p := range ports {
			name, err := os.ReadFile(dir + "/" + p.Name() + "/name")
			if err == nil && strings.TrimSpace(string(name)) == portName {
				return unix.Open("/dev/"+p.Name(), unix.O_RDWR|unix.O_CLOEXEC, 0)
			}
		}
		if _, err := unix.Read(events, make([]byte, 4096)); err != nil && err != unix.ENOBUFS {
			return 0, err
		}
	}
}
