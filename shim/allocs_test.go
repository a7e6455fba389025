package shim

import (
	"strconv"
	"testing"

	"github.com/containerd/containerd/api/runtime/task/v2"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
)

// The calls that clients repeat make no more allocations than these, those of the client and of ttrpc
// included. A change that needs more raises the number, and its author knows.
func TestCallsMakeNoMoreAllocationsThanListed(t *testing.T) {
	b := newBench(t)
	b.create("a")
	must[task.StartResponse](b, "Start", &task.StartRequest{ID: "a"})
	b.pod.stats = pod.Stats{Network: network(), Stats: &cgroup.Stats{Version: 1}}
	execs := 0
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
		{"Stats", func() { must[task.StatsResponse](b, "Stats", &task.StatsRequest{ID: "a"}) }, 77},
		{"Exec, Start, Wait and Delete, with the events", func() {
			execs++
			id := strconv.Itoa(execs)
			b.addExec("a", id)
			must[task.StartResponse](b, "Start", &task.StartRequest{ID: "a", ExecID: id})
			b.pod.exit("a", pod.ExecID(id), 0)
			must[task.WaitResponse](b, "Wait", &task.WaitRequest{ID: "a", ExecID: id})
			must[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: "a", ExecID: id})
		}, 430}, // events are sent at the same time, so this is not exact
	} {
		if n := testing.AllocsPerRun(200, c.call); n > c.most {
			t.Errorf("%s: %.0f allocations, at most %.0f are listed", c.method, n, c.most)
		}
	}
}
