package shim

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/anypb"

	rkt "github.com/rkt/containerd-shim-rkt-v1/options"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/sandbox"
)

// told collects the failed starts of a service.
func (b *bench) told() func() []disk.FailedStart {
	var mu sync.Mutex
	var all []disk.FailedStart
	b.svc.cfg.Failed = func(f disk.FailedStart) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, f)
	}
	return func() []disk.FailedStart {
		mu.Lock()
		defer mu.Unlock()
		defer func() { all = nil }()
		return all
	}
}

func TestEveryStartThatFailsIsReportedOnceAndNoOther(t *testing.T) {
	b := newBench(t)
	told := b.told()
	want := func(step, id, bundle string) disk.FailedStart {
		t.Helper()
		all := told()
		if len(all) != 1 || all[0].Step != step || all[0].Last().ID != id || all[0].Last().Bundle != bundle || all[0].Error == "" || all[0].Namespace != "testing" {
			t.Fatalf("%+v", all)
		}
		return all[0]
	}
	req := &task.CreateTaskRequest{ID: "a", Bundle: bundle(t), Options: &anypb.Any{TypeUrl: "no.such.Options", Value: []byte("x")}}
	if _, err := call[task.CreateTaskResponse](b, "Create", req); err == nil {
		t.Fatal("created")
	}
	want(disk.StepCreate, "a", req.Bundle)

	b.pod.onCreate = func(pod.AppConfig) error {
		return fmt.Errorf("made no app: %w", &pod.StartFailure{Err: errdefs.ErrNotFound, Pod: "uuid", Stage1: disk.Stage1Record{Name: "native"}, Calls: []journal.Entry{{Entrypoint: "run"}}})
	}
	a, err := anypb.New(&options.Options{NoPivotRoot: true})
	if err != nil {
		t.Fatal(err)
	}
	req.Options = a
	if _, err := call[task.CreateTaskResponse](b, "Create", req); err == nil {
		t.Fatal("created")
	}
	if f := want(disk.StepCreate, "a", req.Bundle); f.Last().Pod != "uuid" || f.Stage1.Name != "native" || len(f.Calls) != 1 || !slices.Equal(f.Options, []string{"no_pivot_root"}) {
		t.Errorf("%+v", f)
	}

	b.pod.onCreate = nil
	made := b.create("b")
	if _, err := call[task.CreateTaskResponse](b, "Create", made); err == nil {
		t.Fatal("created twice")
	}
	if all := told(); len(all) != 0 {
		t.Errorf("an id in use: %+v", all)
	}

	box, _, _ := sandboxBundle(t)
	create := &sandbox.CreateSandboxRequest{SandboxId: "box", BundlePath: box, Options: &anypb.Any{TypeUrl: "no.such.Config"}}
	if _, err := ask[sandbox.CreateSandboxResponse](t.Context(), b.sandboxes(), "CreateSandbox", create); err == nil {
		t.Fatal("created")
	}
	want(disk.StepCreateSandbox, "box", box)
}

func TestTheNamesOfOptionsAreBounded(t *testing.T) {
	var unused []string
	for range 100 {
		unused = append(unused, "\x1b[2J"+strings.Repeat("x", 1000))
	}
	names := namesOf(&rkt.Options{}, unused)
	if text := strings.Join(names, ""); len(names) != maxOptions || len(text) > maxOptions*100 || strings.Contains(text, "\x1b") {
		t.Errorf("%d names, %q", len(names), names[0])
	}
}

func TestTheNamesOfOptionsThatArriveReachThePod(t *testing.T) {
	b := newBench(t)
	var got []string
	b.pod.onCreate = func(c pod.AppConfig) error { got = c.Arrived; return nil }
	defer func() { b.pod.onCreate = nil }()
	a, err := anypb.New(&options.Options{NoPivotRoot: true, BinaryName: "/secret/runc"})
	if err != nil {
		t.Fatal(err)
	}
	must[task.CreateTaskResponse](b, "Create", &task.CreateTaskRequest{ID: "a", Bundle: bundle(t), Options: a})
	if want := []string{"no_pivot_root", "binary_name (not used)"}; !slices.Equal(got, want) || strings.Contains(fmt.Sprint(got), "secret") {
		t.Errorf("%q", got)
	}
}
