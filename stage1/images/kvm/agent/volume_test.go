package main

import (
	"reflect"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// In the machine the number of a device of the host is that of another disk, or of none.
func TestARuleForABlockDeviceOfTheHostIsForTheVolumeOfTheApp(t *testing.T) {
	rule := func(kind string, major, minor int64, access string) specs.LinuxDeviceCgroup {
		r := specs.LinuxDeviceCgroup{Allow: true, Type: kind, Access: access}
		if major >= 0 {
			r.Major = &major
		}
		if minor >= 0 {
			r.Minor = &minor
		}
		return r
	}
	own := []volume{
		{channel.Volume{Major: 7, Minor: 3}, unix.Mkdev(254, 16)},
		{channel.Volume{Major: 7, Minor: 4}, unix.Mkdev(254, 32)},
	}
	all, minus := rule("b", -1, -1, "m"), int64(-1)
	runcs := all
	runcs.Major, runcs.Minor = &minus, &minus
	got := rulesInside([]specs.LinuxDeviceCgroup{
		rule("a", -1, -1, "rwm"), all, runcs, rule("c", 10, 229, "rw"),
		rule("b", 7, 3, "r"), rule("b", 7, -1, "w"), rule("b", -1, 4, "rw"),
		rule("b", 254, 0, "rwm"), rule("b", 254, -1, "rwm"), // of the host's disks
	}, own)
	want := []specs.LinuxDeviceCgroup{
		rule("a", -1, -1, "rwm"), all, runcs, rule("c", 10, 229, "rw"),
		rule("b", 254, 16, "r"), rule("b", 254, 16, "w"), rule("b", 254, 32, "w"), rule("b", 254, 32, "rw"),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the rules are %+v, want %+v", got, want)
	}
}
