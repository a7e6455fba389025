package shim

import (
	"context"
	"errors"
	"testing"

	"github.com/containerd/containerd/api/runtime/task/v2"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	wiretask "github.com/rkt/containerd-shim-rkt-v1/wire/task"
)

// failCreate makes a create fail; with gone, its caller disconnects before that.
func (b *bench) failCreate(id string, gone bool) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.pod.onCreate = func(pod.AppConfig) error {
		if gone {
			cancel()
		}
		return errors.New("it cannot be made")
	}
	defer func() { b.pod.onCreate = nil }()
	if _, err := b.svc.create(ctx, &wiretask.CreateTaskRequest{ID: id, Bundle: bundle(b.t)}); err == nil {
		b.t.Fatal("created")
	}
}

func (b *bench) serves() {
	b.t.Helper()
	select {
	case <-b.svc.Ending():
		b.t.Fatal("the service ends")
	default:
	}
}

// requirements.md#R4
func TestAServiceWhoseOnlyCreateWasCancelledEnds(t *testing.T) {
	b := newBench(t)
	b.failCreate("a", false)
	b.serves() // the caller may try again
	b.create("b")
	b.failCreate("a", true)
	b.serves() // another app needs it
	must[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: "b"})
	b.failCreate("a", true)
	wait.For(t, "Done", b.svc.Done())
	must[emptypb.Empty](b, "Shutdown", &task.ShutdownRequest{ID: "a"})
}
