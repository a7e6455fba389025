package machine_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
)

// tap makes a tap in a network namespace of its own.
func tap(t *testing.T) *os.File {
	t.Helper()
	var tap, namespace *os.File
	err := proc.OnThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		// The namespace has to last as long as the tap.
		if namespace, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())); err != nil {
			return err
		}
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		tap = os.NewFile(uintptr(fd), "tap")
		request, err := unix.NewIfreq("tap0")
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		return unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tap.Close(); namespace.Close() })
	return tap
}

func TestNetworkInterfacesComeAndGo(t *testing.T) {
	c, g := config(t)
	boot(t, c, g)
	if got := g.ask("load", "virtio_net"); got != "" {
		t.Fatal(got)
	}
	mac := net.HardwareAddr{0x02, 0, 0, 0xab, 0xcd, 0xef}
	nic, err := g.AddNIC(t.Context(), machine.NIC{Tap: tap(t), MAC: mac, MTU: 1400})
	if err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the guest has the interface", func() bool { return g.ask("read", "/sys/class/net/eth0/address") == mac.String()+"\n" })
	if got := g.ask("read", "/sys/class/net/eth0/mtu"); got != "1400\n" {
		t.Errorf("the MTU is %q", got)
	}
	if err := g.RemoveDevice(t.Context(), nic); err != nil {
		t.Fatal(err)
	}
	if got := g.ask("list", "/sys/class/net"); strings.Contains(got, "eth0") {
		t.Errorf("the guest has %q", got)
	}
	if err := g.RemoveDevice(t.Context(), nic); err == nil || !strings.Contains(err.Error(), "no such device") {
		t.Errorf("removed again: %v", err)
	}
	// A device that is refused leaves its port.
	for range 20 {
		if _, err := g.AddNIC(t.Context(), machine.NIC{Tap: os.Stdin, MAC: mac}); err == nil {
			t.Fatal("standard input is a tap")
		}
	}
	if _, err := g.AddNIC(t.Context(), machine.NIC{Tap: tap(t), MAC: mac}); err != nil {
		t.Error(err)
	}
}

func TestDisksComeAndGo(t *testing.T) {
	c, g := config(t)
	boot(t, c, g)
	if got := g.ask("load", "virtio_blk"); got != "" {
		t.Fatal(got)
	}
	var disks []machine.Device
	for i, readOnly := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "disk")
		write(t, path, strings.Repeat("disk "+fmt.Sprint(i)+".\n", 512))
		flags := os.O_RDWR
		if readOnly {
			flags = os.O_RDONLY
		}
		f, err := os.OpenFile(path, flags, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		d, err := g.AddDisk(t.Context(), machine.Disk{File: f, ReadOnly: readOnly, Serial: fmt.Sprint("serial-", i)})
		if err != nil {
			t.Fatal(err)
		}
		disks = append(disks, d)
		name := []string{"vda", "vdb"}[i]
		wait.Until(t, "the guest has the disk", func() bool { // it has the node before it can open it
			opened := g.ask("read", "/dev/"+name)
			return g.ask("read", "/sys/block/"+name+"/serial") == fmt.Sprint("serial-", i) && !strings.HasPrefix(opened, "error: open")
		})
		if got := g.ask("read", "/dev/"+name); len(got) != 4096 || !strings.HasPrefix(got, "disk "+fmt.Sprint(i)) {
			t.Errorf("the disk has %d bytes: %.20q", len(got), got)
		}
		if got := g.ask("write", "/dev/"+name, "written"); (got == "") == readOnly {
			t.Errorf("to write to it gives %q, and it is read-only: %v", got, readOnly)
		}
		g.ask("sync")
		if b, err := os.ReadFile(path); err != nil || strings.HasPrefix(string(b), "written") == readOnly {
			t.Errorf("the file has %.20q: %v", b, err)
		}
	}
	if _, err := g.AddDisk(t.Context(), machine.Disk{File: os.Stdin, Serial: strings.Repeat("a", 21)}); err == nil {
		t.Error("a serial number of 21 characters was accepted")
	}
	for _, d := range disks {
		if err := g.RemoveDevice(t.Context(), d); err != nil {
			t.Error(err)
		}
	}
	if got := g.ask("list", "/dev"); strings.Contains(got, "vd") {
		t.Errorf("the guest has %q", got)
	}
}

// A guest may never give up a device.
func TestTheRemovalOfADeviceEndsWithItsContext(t *testing.T) {
	c, g := config(t)
	boot(t, c, g)
	nic, err := g.AddNIC(t.Context(), machine.NIC{Tap: tap(t), MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.RemoveDevice(ctx, nic); err == nil {
		t.Error("it was removed")
	}
	if err := g.RemoveDevice(t.Context(), nic); err != nil {
		t.Error(err)
	}
}
