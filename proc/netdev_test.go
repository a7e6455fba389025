package proc

import (
	"os"
	"reflect"
	"testing"
)

func TestInterfacesAreThoseOfTheProcessButTheLoopback(t *testing.T) {
	got := parseNetDev("Inter-|   Receive                                                |  Transmit\n" +
		" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n" +
		"    lo:   36225     175    0    0    0     0          0         0    36225     175    0    0    0     0       0          0\n" +
		"  eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  half: 1 2\n")
	want := []Interface{{"eth0", Traffic{1, 2, 3, 4}, Traffic{9, 10, 11, 12}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if _, err := Interfaces(os.Getpid()); err != nil {
		t.Error(err)
	}
	if _, err := Interfaces(0); err == nil {
		t.Error("process 0 has interfaces")
	}
}
