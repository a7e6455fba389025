package conformance

import (
	"context"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// tunnels is the file that makes network devices.
const tunnels = "/dev/net/tun"

// movedDevice is the name of the host's network device in an app.
const movedDevice = "moved0"

// askDevice asks for a network device of the host's, in a network namespace.
func askDevice(s *specs.Spec) {
	namespace(specs.NetworkNamespace)(s)
	s.Linux.NetDevices = map[string]specs.LinuxNetDevice{"verify0": {Name: movedDevice}}
}

// withDevice makes a network device on the host, and makes a spec of askDevice ask for it. The
// kernel removes the device, from whatever namespace it is in, when this process closes its file.
func (t *trial) withDevice(s *specs.Spec) error {
	fd, err := unix.Open(tunnels, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", tunnels, err)
	}
	t.later(func(context.Context) error { return unix.Close(fd) })
	request, err := unix.NewIfreq("verify%d") // the kernel finds a number
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return fmt.Errorf("make a network device: %w", err)
	}
	s.Linux.NetDevices = map[string]specs.LinuxNetDevice{request.Name(): {Name: movedDevice}}
	return nil
}

// noTunnels returns the reason why the kit can make no network device, or "".
func noTunnels() string {
	fd, err := unix.Open(tunnels, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Sprintf("the machine makes no network devices: %s: %s", tunnels, err)
	}
	_ = unix.Close(fd)
	return ""
}
