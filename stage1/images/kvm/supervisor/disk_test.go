package supervisor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
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

// disks is a machine that remembers the disks of its devices.
type disks map[machine.Device][]machine.Disk

func (d disks) AddDisks(_ context.Context, all ...machine.Disk) (machine.Device, error) {
	device := machine.Device("with-" + all[0].Serial)
	d[device] = all
	return device, nil
}

func (d disks) RemoveDevice(_ context.Context, device machine.Device) error {
	if d[device] == nil {
		return errors.New("no such device")
	}
	delete(d, device)
	return nil
}

// serials returns the serial numbers of the disks of each device.
func (d disks) serials() (all []string) {
	for _, device := range d {
		var serials []string
		for _, disk := range device {
			serials = append(serials, disk.Serial)
		}
		all = append(all, strings.Join(serials, " "))
	}
	slices.Sort(all)
	return all
}

// newWorldOfDisks returns a world with the disks of its machine, and what the agent gets with app/add.
func newWorldOfDisks(t *testing.T) (*world, disks, <-chan *channel.Header) {
	t.Helper()
	w := newWorld(t)
	has := disks{}
	w.s.Disks = has
	headers := make(chan *channel.Header, 1)
	w.guest.on(abi.AppAdd, func(s *channel.Stream, h *channel.Header) {
		headers <- h
		succeed(s, h)
	})
	return w, has, headers
}

func TestTheRootOfAnAppIsADiskUntilTheAppIsRemoved(t *testing.T) {
	w, has, headers := newWorldOfDisks(t)
	path := image(t)
	r := &abi.Request{Entrypoint: abi.AppAdd, App: "web", Mounts: []abi.Mount{*ext4(path, "loop")}}
	if err := w.call(t.Context(), r, null(t)); err != nil {
		t.Fatal(err)
	}
	h := <-headers
	want := &channel.Root{Disks: []channel.Disk{{Serial: "disk-1", Type: "ext4"}}}
	if !reflect.DeepEqual(h.Root, want) || h.Call.Rootfs != "/disks/web/0" || h.Call.Mounts != nil {
		t.Errorf("the agent has got %+v, %+v", h.Root, h.Call)
	}
	if d := has["with-disk-1"]; len(has) != 1 || len(d) != 1 || d[0].File.Name() != path || d[0].ReadOnly {
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

// slowDisks is a machine whose guest keeps disks until it is let go.
type slowDisks struct {
	disks
	letGo, gone chan struct{}
}

func (d *slowDisks) RemoveDevice(ctx context.Context, device machine.Device) error {
	select {
	case <-d.letGo:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer close(d.gone)
	return d.disks.RemoveDevice(ctx, device)
}

func TestADiskThatTheGuestGivesUpLateIsRemovedThen(t *testing.T) {
	w, has, _ := newWorldOfDisks(t)
	slow := &slowDisks{disks: has, letGo: make(chan struct{}), gone: make(chan struct{})}
	w.s.Disks = slow
	path := image(t)
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppAdd, App: "web", Mounts: []abi.Mount{*ext4(path, "loop")}}, null(t)); err != nil {
		t.Fatal(err)
	}
	w.tell("exit web code=0")
	w.next()
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppRm, App: "web"}, [3]*os.File{}); err != nil || len(has) != 1 {
		t.Fatalf("%v, and the machine has the disks %+v", err, has)
	}
	if _, err := openDisk(ext4(path)); err == nil || !strings.Contains(err.Error(), "another machine uses it") {
		t.Errorf("the disk that the guest keeps: %v", err)
	}
	close(slow.letGo)
	wait.For(t, "the removal", slow.gone)
	wait.Until(t, "the disk is free", func() bool {
		d, err := openDisk(ext4(path))
		if err == nil {
			d.file.Close()
		}
		return err == nil
	})
}

// An image of containerd's snapshotter erofs is a disk for each layer, and one for what the container writes.
func TestAnOverlayOfDisks(t *testing.T) {
	w, has, headers := newWorldOfDisks(t)
	writable, layer := image(t), image(t)
	mounts := []abi.Mount{*ext4(writable, "rw", "loop")}
	for range 9 {
		mounts = append(mounts, abi.Mount{Type: "erofs", Source: layer, Options: []string{"ro", "loop"}})
	}
	overlay := abi.Mount{
		Type: "overlay", Source: "overlay", Options: []string{"lowerdir=1:2", "upperdir=0/upper", "workdir=0/work", "index=off"},
		Dirs: []abi.Dir{{Path: "0/upper", Mode: 0o755}},
	}
	r := &abi.Request{Entrypoint: abi.AppAdd, App: "web", Mounts: append(mounts, overlay)}
	if err := w.call(t.Context(), r, null(t)); err != nil {
		t.Fatal(err)
	}
	h := <-headers
	if len(h.Root.Disks) != 10 || h.Root.Disks[0].ReadOnly || !h.Root.Disks[1].ReadOnly || !reflect.DeepEqual(*h.Root.Overlay, overlay) || h.Call.Rootfs != "/disks/web/root" {
		t.Errorf("the agent has got %+v, %+v", h.Root, h.Call)
	}
	if got := has.serials(); !slices.Equal(got, []string{"disk-1 disk-2 disk-3 disk-4 disk-5 disk-6 disk-7 disk-8", "disk-9 disk-10"}) {
		t.Errorf("the devices of the machine are %q", got)
	}
	w.tell("exit web code=0")
	w.next()
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppRm, App: "web"}, [3]*os.File{}); err != nil || len(has) != 0 {
		t.Errorf("%v, and the machine has the disks %+v after app/rm", err, has)
	}
	// What a machine cannot mount is refused by name, and no file stays locked.
	for text, change := range map[string]func(*abi.Request){
		`"nfs_export=on"`: func(r *abi.Request) { r.Mounts[10].Options = append(r.Mounts[10].Options, "nfs_export=on") },
		"type xfs":        func(r *abi.Request) { r.Mounts[9].Type = "xfs" },
	} {
		bad := *r
		bad.Mounts = slices.Clone(r.Mounts)
		change(&bad)
		err := w.call(t.Context(), &bad, null(t))
		if serve.CodeOf(err) != abi.ExitNotImplemented || !strings.Contains(err.Error(), text) || len(has) != 0 {
			t.Errorf("%s: %v, and the machine has the disks %+v", text, err, has)
		}
	}
	if d, err := openDisk(ext4(writable)); err != nil {
		t.Errorf("the disk of an app that was refused: %v", err)
	} else {
		d.file.Close()
	}
}
