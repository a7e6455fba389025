package machine_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
)

func TestAMicroVMHasWhatItBootsWithAndRefusesTheRestByName(t *testing.T) {
	c, g := config(t)
	c.Type, c.CPUs = machine.MicroVM, 2
	dir := share(t, &c)
	write(t, filepath.Join(dir, "file"), "shared")
	nics := []machine.NIC{
		{Tap: tap(t), MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, MTU: 1400},
		{Tap: tap(t), MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}},
	}
	c.NICs = nics
	boot(t, c, g)
	if got := g.ask("cpus"); got != "2" {
		t.Errorf("the guest has %s processors", got)
	}
	if got := g.ask("mkdir", "/pod") + g.ask("mount", "pod", "/pod", "virtiofs"); got != "" {
		t.Fatal(got)
	}
	if got := g.ask("read", "/pod/file"); got != "shared" {
		t.Errorf("the guest reads %q", got)
	}
	if got := g.ask("load", "virtio_net"); got != "" {
		t.Fatal(got)
	}
	for _, n := range nics {
		if got := g.ask("addresses"); !strings.Contains(got, n.MAC.String()) {
			t.Errorf("the guest has the addresses %q, without %s", got, n.MAC)
		}
		if d, err := g.AddNIC(t.Context(), n); err != nil || d == "" {
			t.Errorf("the device of %s is %q: %v", n.MAC, d, err)
		}
	}
	if got := g.ask("list", "/sys/bus/pci/devices"); got != "" {
		t.Errorf("the guest has devices of PCI: %q", got)
	}

	disk, err := os.Open(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	nic, _ := g.AddNIC(t.Context(), nics[0])
	for what, change := range map[string]func() error{
		"gets no network interface": func() error {
			_, err := g.AddNIC(t.Context(), machine.NIC{Tap: tap(t), MAC: net.HardwareAddr{2, 0, 0, 0, 0, 3}})
			return err
		},
		"keeps the network interfaces": func() error { return g.RemoveDevice(t.Context(), nic) },
		"has no disks": func() error {
			_, err := g.AddDisks(t.Context(), machine.Disk{File: disk, ReadOnly: true})
			return err
		},
	} {
		var fixed machine.FixedError
		if err := change(); !errors.As(err, &fixed) || !strings.Contains(err.Error(), "the type microvm "+what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, size := range [][2]int64{{3, 256 << 20}, {2, 258 << 20}} {
		if err := g.Resize(t.Context(), int(size[0]), size[1]); err == nil {
			t.Errorf("the machine has %d processors and %d bytes", size[0], size[1])
		}
	}
	if cpus, memory, err := g.Size(t.Context()); cpus != 2 || memory != 256<<20 || err != nil {
		t.Errorf("the machine has %d processors and %d bytes: %v", cpus, memory, err)
	}
	if _, err := g.to.Write([]byte("poweroff\n")); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the machine ends", g.Done())
	if err := g.Err(); err != nil {
		t.Error(err)
	}
}

// The board has no clock of its own, so the kernel has to be told how fast the processor's counter is.
func TestTheClockOfAMicroVMIsAsFastAsItsHosts(t *testing.T) {
	c, g := config(t)
	c.Type = machine.MicroVM
	boot(t, c, g)
	now := func() (guest, host time.Time) {
		before := time.Now()
		ns, err := strconv.ParseInt(g.ask("clock"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Unix(0, ns), before.Add(time.Since(before) / 2)
	}
	guest, host := now()
	if off := guest.Sub(host).Abs(); off > 5*time.Second {
		t.Errorf("the guest's clock is off by %s after its boot", off)
	}
	time.Sleep(4 * time.Second)
	guestLater, hostLater := now()
	if guest, host := guestLater.Sub(guest), hostLater.Sub(host); (guest - host).Abs() > host/50 {
		t.Errorf("in %s of the host, %s of the guest have passed", host, guest)
	}
}

func TestAMicroVMThatPanicsIsNoEndOfItsOwn(t *testing.T) {
	c, g := config(t)
	c.Type = machine.MicroVM
	boot(t, c, g)
	if _, err := g.to.Write([]byte("exit\n")); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the machine ends", g.Done())
	if err := g.Err(); err == nil || !strings.Contains(err.Error(), "panics") {
		t.Errorf("the error is %v", err)
	}
}
