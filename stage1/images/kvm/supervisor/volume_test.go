package supervisor

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
)

// asksFor returns a spec with a block device of the host, and the access that a rule gives to it.
func asksFor(t *testing.T, device, path, access string) func(*specs.Spec) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		t.Fatal(err)
	}
	major, minor := int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	return func(s *specs.Spec) {
		s.Linux.Devices = append(s.Linux.Devices, specs.LinuxDevice{
			Path: path, Type: "b", Major: major, Minor: minor, FileMode: new(os.FileMode(0o640)), UID: new(uint32(1)), GID: new(uint32(2)),
		})
		s.Linux.Resources = &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{
			{Access: "rwm"}, {Allow: true, Type: "b", Major: &major, Minor: &minor, Access: access},
		}}
	}
}

func TestABlockDeviceIsADiskUntilTheLastAppThatHasItIsRemoved(t *testing.T) {
	device := loop(t, image(t))
	w, has, headers := newWorldOfDisks(t)
	add := func(app string) *channel.Header {
		t.Helper()
		r := with(t, asksFor(t, device, "/data/volume", "rwm"))
		if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppAdd, App: app, Spec: r.Spec}, null(t)); err != nil {
			t.Fatal(err)
		}
		return <-headers
	}
	remove := func(app string) {
		t.Helper()
		w.tell("exit " + app + " code=0")
		w.next()
		if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppRm, App: app}, [3]*os.File{}); err != nil {
			t.Fatal(err)
		}
	}
	first, second := add("web"), add("log")
	if len(has) != 1 {
		t.Fatalf("the machine has the disks %+v", has)
	}
	for app, h := range map[string]*channel.Header{"web": first, "log": second} {
		var s specs.Spec
		if err := json.Unmarshal(h.Call.Spec, &s); err != nil {
			t.Fatal(err)
		}
		node := "/dev/volumes/" + app + "/0"
		want := []specs.Mount{{Destination: "/data/volume", Type: "bind", Source: node, Options: []string{"bind"}}}
		if !reflect.DeepEqual(s.Mounts, want) || len(s.Linux.Devices) != 0 {
			t.Errorf("app %s has the mounts %+v and the devices %+v", app, s.Mounts, s.Linux.Devices)
		}
		v := h.Volumes[0]
		if d := has[machine.Device("with-"+v.Serial)]; d[0].File.Name() != device || d[0].ReadOnly {
			t.Errorf("the disk of app %s is %+v", app, d)
		}
		if v.Node != node || v.Mode != 0o640 || v.UID != 1 || v.GID != 2 || v.Major != 7 {
			t.Errorf("the volume of app %s is %+v", app, v)
		}
	}
	open := func() error {
		f, err := os.OpenFile(device, os.O_RDWR|unix.O_EXCL, 0)
		f.Close()
		return err
	}
	remove("web")
	if err := open(); err == nil || len(has) != 1 {
		t.Errorf("the device of an app is not in use: %v; the machine has the disks %+v", err, has)
	}
	remove("log")
	if err := open(); err != nil || len(has) != 0 {
		t.Errorf("the device of no app is in use: %v; the machine has the disks %+v", err, has)
	}
	// An app that cannot be added leaves none.
	w.guest.on(abi.AppAdd, func(s *channel.Stream, _ *channel.Header) { say(s, "error", "no", "exit", "1") })
	r := with(t, asksFor(t, device, "/dev/x", "rwm"))
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppAdd, App: "other", Spec: r.Spec}, null(t)); err == nil || len(has) != 0 || open() != nil {
		t.Errorf("app/add gives %v, and the machine has the disks %+v", err, has)
	}
}

func TestADeviceThatAnAppMayNotWriteIsAReadOnlyDisk(t *testing.T) {
	device := loop(t, image(t))
	w := newWorld(t)
	has := disks{}
	w.s.Disks = has
	add := func(app, access string) error {
		r := with(t, asksFor(t, device, "/dev/x", access))
		return w.call(t.Context(), &abi.Request{Entrypoint: abi.AppAdd, App: app, Spec: r.Spec}, null(t))
	}
	if err := add("reader", "rm"); err != nil {
		t.Fatal(err)
	}
	for _, device := range has {
		d := device[0]
		flags, err := unix.FcntlInt(d.File.Fd(), unix.F_GETFL, 0)
		if !d.ReadOnly || err != nil || flags&unix.O_ACCMODE != unix.O_RDONLY {
			t.Errorf("the disk is %+v, with a descriptor of flags %#x, %v", d, flags, err)
		}
	}
	if err := add("writer", "rw"); serve.CodeOf(err) != abi.ExitFailedPrecondition || !strings.Contains(err.Error(), "only reads it") {
		t.Errorf("another app may write the disk: %v", err)
	}
	if err := add("second", "r"); err != nil {
		t.Error(err)
	}
}

func TestTheSourceOfAMountMayBeABlockDevice(t *testing.T) {
	device := loop(t, image(t))
	node := t.TempDir() + "/node" // as a name of the kubelet is another one for the device
	if err := os.Symlink(device, node); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		t.Fatal(err)
	}
	for _, options := range [][]string{{"bind"}, {"bind", "ro"}} {
		s, binds, err := translate(with(t, func(s *specs.Spec) {
			s.Mounts = []specs.Mount{{Destination: "/block", Type: "bind", Source: node, Options: options}}
			s.Linux.Resources = &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}}
		}), "dir", nil)
		if err != nil {
			t.Fatal(err)
		}
		closeBinds(binds)
		if len(s.volumes) != 1 || s.Mounts[0].Source != "/dev/volumes/a/0" {
			t.Fatalf("the volumes are %+v, the mounts %+v", s.volumes, s.Mounts)
		}
		v := s.volumes[0]
		if unix.Mkdev(uint32(v.Major), uint32(v.Minor)) != st.Rdev || v.Mode != st.Mode&0o7777 || v.readOnly != (len(options) == 2) {
			t.Errorf("with the options %q the volume is %+v", options, v)
		}
	}
}

func TestADeviceThatAMachineCannotHaveIsRefusedByName(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*specs.Spec)
		field  string
	}{
		"a character device of the host": {func(s *specs.Spec) {
			s.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/zero", Type: "c", Major: 1, Minor: 5}, {Path: "/dev/kmsg", Type: "c", Major: 1, Minor: 11}}
		}, "linux.devices[1]: /dev/kmsg"},
		"the number of a disk that the app has not": {func(s *specs.Spec) {
			s.Linux.Resources = &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{
				{Access: "rwm"}, {Allow: true, Type: "b", Access: "m"}, {Allow: true, Type: "b", Major: new(int64(254)), Access: "r"},
			}}
		}, "linux.resources.devices[2]"},
		"a number of both types": {func(s *specs.Spec) {
			s.Linux.Resources = &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Access: "rwm"}, {Allow: true, Major: new(int64(8)), Minor: new(int64(0)), Access: "r"}}}
		}, "linux.resources.devices[1]"},
		"a number that the host's kernel has chosen": {func(s *specs.Spec) {
			s.Linux.Resources = &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: true, Type: "c", Major: new(int64(241)), Access: "rwm"}}}
		}, "linux.resources.devices[0]"},
	} {
		_, binds, err := translate(with(t, test.change), "dir", nil)
		if serve.CodeOf(err) != abi.ExitNotImplemented || !strings.Contains(err.Error(), test.field) {
			t.Errorf("%s: %v; the error has to name %s", name, err, test.field)
		}
		closeBinds(binds)
	}
}

func TestABlockDeviceThatTheHostUsesIsNoDisk(t *testing.T) {
	device := loop(t, image(t))
	w := newWorld(t)
	w.s.Disks = disks{}
	user, err := os.OpenFile(device, os.O_RDONLY|unix.O_EXCL, 0) // as a mount is
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	r := with(t, asksFor(t, device, "/dev/x", "rw"))
	err = w.call(t.Context(), &abi.Request{Entrypoint: abi.AppAdd, App: "a", Spec: r.Spec}, null(t))
	if serve.CodeOf(err) != abi.ExitFailedPrecondition || !strings.Contains(err.Error(), "linux.devices[0]: block device 7:") {
		t.Errorf("the error is %v", err)
	}
}
