package machine_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
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
		d, err := g.AddDisks(t.Context(), machine.Disk{File: f, ReadOnly: readOnly, Serial: fmt.Sprint("serial-", i)})
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
	if _, err := g.AddDisks(t.Context(), machine.Disk{File: os.Stdin, Serial: strings.Repeat("a", 21)}); err == nil {
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

// The disks of a device take one port, and come and go together.
func TestSeveralDisksAreOneDevice(t *testing.T) {
	c, g := config(t)
	boot(t, c, g)
	if got := g.ask("load", "virtio_blk"); got != "" {
		t.Fatal(got)
	}
	var all []machine.Disk
	for i := range machine.MaxDisks {
		path := filepath.Join(t.TempDir(), "disk")
		write(t, path, strings.Repeat(fmt.Sprint(i), 4096))
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		all = append(all, machine.Disk{File: f, ReadOnly: true, Serial: fmt.Sprint("serial-", i)})
	}
	// contents waits until the guest can open a number of disks, and returns the first byte of each.
	contents := func(n int) string {
		t.Helper()
		var found []string
		wait.Until(t, fmt.Sprintf("the guest has %d disks", n), func() bool {
			found = nil
			for name := range strings.FieldsSeq(g.ask("list", "/sys/block")) {
				if text := g.ask("read", "/dev/"+name); strings.HasPrefix(name, "vd") && len(text) == 4096 {
					found = append(found, text[:1])
				}
			}
			return len(found) == n
		})
		slices.Sort(found)
		return strings.Join(found, "")
	}
	if _, err := g.AddDisks(t.Context(), append(all, all[0])...); err == nil {
		t.Error("nine disks were accepted")
	}
	if _, err := g.AddDisks(t.Context()); err == nil {
		t.Error("no disk was accepted")
	}
	for range 10 { // more often than there are ports
		if _, err := g.AddDisks(t.Context(), all[0], machine.Disk{File: all[1].File, Serial: "written"}, all[2]); err == nil {
			t.Fatal("a file that can only be read is a disk to write to")
		}
	}
	for range 2 {
		first, err := g.AddDisks(t.Context(), all[:3]...)
		if err != nil {
			t.Fatal(err)
		}
		second, err := g.AddDisks(t.Context(), all...)
		if err != nil {
			t.Fatal(err)
		}
		if got := contents(11); got != "00112234567" {
			t.Errorf("the guest has the disks %s", got)
		}
		if err := g.RemoveDevice(t.Context(), first); err != nil {
			t.Error(err)
		}
		if got := contents(8); got != "01234567" {
			t.Errorf("the guest has the disks %s", got)
		}
		if err := g.RemoveDevice(t.Context(), second); err != nil {
			t.Error(err)
		}
		if got := contents(0); got != "" {
			t.Errorf("the guest has the disks %s", got)
		}
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
