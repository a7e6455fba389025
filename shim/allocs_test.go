package shim

import (
	"testing"

	"github.com/containerd/containerd/api/runtime/task/v2"
	"google.golang.org/protobuf/types/known/emptypb"
)

// The calls that clients repeat make no more allocations than these, those of the client and of ttrpc
// included. A change that needs more raises the number, and its author knows.
func TestCallsMakeNoMoreAllocationsThanListed(t *testing.T) {
	b := newBench(t)
	b.create("a")
	must[task.StartResponse](b, "Start", &task.StartRequest{ID: "a"})
	for _, c := range []struct {
		method string
		call   func()
		most   float64
	}{
		{"Connect", func() { must[task.ConnectResponse](b, "Connect", &task.ConnectRequest{ID: "a"}) }, 48},
		{"State", func() { must[task.StateResponse](b, "State", &task.StateRequest{ID: "a"}) }, 52},
		{"Pids", func() { must[task.PidsResponse](b, "Pids", &task.PidsRequest{ID: "a"}) }, 54},
		{"Kill", func() { must[emptypb.Empty](b, "Kill", &task.KillRequest{ID: "a", Signal: 10}) }, 45},
		{"CloseIO", func() { must[emptypb.Empty](b, "CloseIO", &task.CloseIORequest{ID: "a", Stdin: true}) }, 45},
	} {
		if n := testing.AllocsPerRun(200, c.call); n > c.most {
			t.Errorf("%s: %.0f allocations, at most %.0f are listed", c.method, n, c.most)
		}
	}
}
