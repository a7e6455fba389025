package supervisor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
)

// image makes an image of a MiB, without a file system.
func image(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// loop makes a loop device of an image. It is called before newWorld, whose reaper would take losetup for a
// child that nobody waits for.
func loop(t *testing.T, path string, args ...string) (device string) {
	t.Helper()
	out, err := exec.Command("losetup", append(args, "--find", "--show", path)...).CombinedOutput()
	if err != nil {
		t.Skipf("this host has no loop devices: %v: %s", err, out)
	}
	device = strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "-d", device).CombinedOutput(); err != nil {
			t.Errorf("detach %s: %v: %s", device, err, out)
		}
	})
	return device
}

func ext4(path string, options ...string) *abi.Mount {
	return &abi.Mount{Type: "ext4", Source: path, Options: options}
}

func TestADiskHasOneKernelThatWritesIt(t *testing.T) {
	path := image(t)
	first, err := openDisk(ext4(path, "rw", "loop"))
	if err != nil {
		t.Fatal(err)
	}
	for _, option := range []string{"rw", "ro"} {
		if _, err := openDisk(ext4(path, option)); err == nil || !strings.Contains(err.Error(), "another machine uses it") {
			t.Errorf("a disk that a machine writes was opened with %s: %v", option, err)
		}
	}
	first.file.Close()
	for range 2 {
		d, err := openDisk(ext4(path, "ro"))
		if err != nil {
			t.Fatal(err)
		}
		defer d.file.Close()
	}
	if _, err := openDisk(ext4(path, "rw")); err == nil {
		t.Error("a disk that machines read was opened for writing")
	}
}

func TestAnImageThatTheHostHasMountedIsNoDisk(t *testing.T) {
	for _, test := range []struct {
		host, machine string
		ok            bool
	}{{"", "rw", false}, {"", "ro", false}, {"-r", "rw", false}, {"-r", "ro", true}} {
		path := image(t)
		var args []string
		if test.host != "" {
			args = append(args, test.host)
		}
		device := loop(t, path, args...)
		d, err := openDisk(ext4(path, test.machine))
		if (err == nil) != test.ok {
			t.Errorf("the host has the image with %q, the machine with %s: %v", test.host, test.machine, err)
		}
		if err == nil {
			d.file.Close()
		} else if !strings.Contains(err.Error(), device) {
			t.Errorf("the error does not name %s: %v", device, err)
		}
	}
}

func TestARootThatCannotBeADiskIsRefusedByName(t *testing.T) {
	for name, m := range map[string]*abi.Mount{
		`"subvol=1"`: ext4(image(t), "subvol=1"),
		"type xfs":   {Type: "xfs", Source: image(t)},
	} {
		_, err := openDisk(m)
		if f := (*serve.Failure)(nil); !errors.As(err, &f) || f.Code != abi.ExitNotImplemented || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: %v, want %s in it", m, err, name)
		}
	}
}

// disks is a machine that remembers its disks.
type disks map[machine.Device]machine.Disk

func (d disks) AddDisk(_ context.Context, disk machine.Disk) (machine.Device, error) {
	d[machine.Device(disk.Serial)] = disk
	return machine.Device(disk.Serial), nil
}

func (d disks) RemoveDevice(_ context.Context, device machine.Device) error {
	delete(d, device)
	return nil
}

func TestTheRootOfAnAppIsADiskUntilTheAppIsRemoved(t *testing.T) {
	w := newWorld(t)
	has := disks{}
	w.s.Disks = has
	headers := make(chan *channel.Header, 1)
	w.guest.on(abi.AppAdd, func(s *channel.Stream, h *channel.Header) {
		headers <- h
		succeed(s, h)
	})
	path := image(t)
	r := &abi.Request{Entrypoint: abi.AppAdd, App: "web", Mounts: []abi.Mount{*ext4(path, "loop")}}
	if err := w.call(t.Context(), r, null(t)); err != nil {
		t.Fatal(err)
	}
	h := <-headers
	if h.Disk == nil || h.Disk.Type != "ext4" || h.Disk.ReadOnly || h.Call.Rootfs != "/disks/web" || h.Call.Mounts != nil {
		t.Errorf("the agent has got %+v, %+v", h.Disk, h.Call)
	}
	if d := has[machine.Device(h.Disk.Serial)]; len(has) != 1 || d.File.Name() != path || d.ReadOnly {
		t.Errorf("the machine has the disks %+v", has)
	}
	w.tell("exit web code=0")
	if got := w.next(); got != "exit web code=0" {
		t.Fatal(got)
	}
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppRm, App: "web"}, [3]*os.File{}); err != nil {
		t.Fatal(err)
	}
	if len(has) != 0 {
		t.Errorf("the machine has the disks %+v after app/rm", has)
	}
	if d, err := openDisk(ext4(path)); err != nil {
		t.Errorf("the image of a removed app: %v", err)
	} else {
		d.file.Close()
	}
	// An app that cannot be added leaves none.
	w.guest.on(abi.AppAdd, func(s *channel.Stream, _ *channel.Header) { say(s, "error", "no", "exit", "1") })
	r.App = "other"
	if err := w.call(t.Context(), r, null(t)); err == nil || len(has) != 0 {
		t.Errorf("app/add gives %v, and the machine has the disks %+v", err, has)
	}
}
