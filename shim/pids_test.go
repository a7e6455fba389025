package shim

import (
	"context"
	"testing"

	"github.com/containerd/containerd/api/runtime/task/v2"
	"google.golang.org/grpc/codes"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// requirements.md#R3
func TestAContainerdThatDropsWhatHasNoProcessesGetsTheOneThatEnded(t *testing.T) {
	b := newBench(t)
	b.svc.cfg.DropsEnded = true
	b.create("a")
	pid := must[task.StartResponse](b, "Start", &task.StartRequest{ID: "a"}).Pid
	b.pod.exit("a", "", 7)
	resp := must[task.PidsResponse](b, "Pids", &task.PidsRequest{ID: "a"})
	if len(resp.Processes) != 1 || resp.Processes[0].Pid != pid {
		t.Errorf("%v, want process %d", resp, pid)
	}
	_, err := call[task.PidsResponse](b, "Pids", &task.PidsRequest{ID: "b"})
	wantCode(t, err, codes.NotFound, "requirements.md#R4: an app that was never created")
}

// emptied is a pod whose processes have just ended and whose apps still count as running.
type emptied struct{ *fakePod }

func (emptied) Pids(context.Context, pod.AppID) ([]pod.ProcessInfo, error) { return nil, nil }

// requirements.md#T6
func TestAnAppWhoseProcessesAreJustEndingIsNotWithoutProcesses(t *testing.T) {
	b := newBench(t)
	b.create("a")
	pid := must[task.StartResponse](b, "Start", &task.StartRequest{ID: "a"}).Pid
	b.svc.pod = emptied{b.pod}
	resp := must[task.PidsResponse](b, "Pids", &task.PidsRequest{ID: "a"})
	if len(resp.Processes) != 1 || resp.Processes[0].Pid != pid {
		t.Errorf("%v, want process %d", resp, pid)
	}
}
