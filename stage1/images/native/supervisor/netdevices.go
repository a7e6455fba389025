package supervisor

import (
	"errors"
	"fmt"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/netdevice"
)

// takeNetDevices moves the network devices of an app's spec into its network namespace.
func (a *app) takeNetDevices() error {
	devices, err := container.NetDevices(a.spec)
	if err != nil {
		return err
	}
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", a.init.child.PID()))
	if err != nil {
		return fmt.Errorf("linux.netDevices: %w", err)
	}
	defer namespace.Close()
	if a.devices, err = netdevice.Move(namespace, devices); err != nil {
		return fmt.Errorf("linux.netDevices: %w", err)
	}
	return nil
}

// returnNetDevices moves network devices back, if their app could not be made. The process
// of the app must have ended. The returned error also says whether a device is lost.
func (a *app) returnNetDevices(err error) error {
	return errors.Join(err, a.devices.Undo())
}
