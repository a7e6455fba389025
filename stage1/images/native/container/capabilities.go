package container

import (
	"errors"
	"fmt"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// parseCapabilities translates names into masks. As the spec requires, an unknown name
// is no error and grants nothing. If c is nil, the process gets no capabilities.
func parseCapabilities(c *specs.LinuxCapabilities) capabilities {
	if c == nil {
		return capabilities{}
	}
	numbers := make(map[string]int)
	for i, name := range abi.Capabilities() {
		numbers[name] = i
	}
	mask := func(names []string) (m uint64) {
		for _, name := range names {
			if i, ok := numbers[strings.ToUpper(name)]; ok {
				m |= 1 << i
			}
		}
		return m
	}
	return capabilities{
		Bounding:    mask(c.Bounding),
		Effective:   mask(c.Effective),
		Inheritable: mask(c.Inheritable),
		Permitted:   mask(c.Permitted),
		Ambient:     mask(c.Ambient),
	}
}

// available returns the sets without the capabilities that this thread does not have.
// The spec requires that a capability that cannot be granted is no error.
func (c capabilities) available() (capabilities, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data capData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return c, fmt.Errorf("read capabilities: %w", err)
	}
	mask := uint64(data[0].Permitted) | uint64(data[1].Permitted)<<32
	return capabilities{
		c.Bounding & mask, c.Effective & mask, c.Inheritable & mask, c.Permitted & mask, c.Ambient & mask,
	}, nil
}

// dropBounding removes all other capabilities from this thread's bounding set.
func dropBounding(bounding uint64) error {
	for i := range 64 {
		if bounding&(1<<i) != 0 {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(i), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // the kernel has no further capabilities
		} else if err != nil {
			return fmt.Errorf("drop capability %d from the bounding set: %w", i, err)
		}
	}
	return nil
}

// capData is the argument of capset(2), version 3.
type capData [2]unix.CapUserData

func (c capabilities) data() (d capData) {
	for i := range d {
		shift := 32 * i
		d[i] = unix.CapUserData{
			Effective:   uint32(c.Effective >> shift),
			Permitted:   uint32(c.Permitted >> shift),
			Inheritable: uint32(c.Inheritable >> shift),
		}
	}
	return d
}

// apply sets the calling thread's sets. It leaves out ambient capabilities that the
// kernel refuses because they are not both permitted and inheritable.
func (c capabilities) apply() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := c.data()
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("set capabilities: %w", err)
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	for i := range 64 {
		if c.Ambient&(1<<i) != 0 {
			_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(i), 0, 0)
		}
	}
	return nil
}
