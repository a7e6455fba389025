package integration

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// fuzzing is the duration of the case about calls in any order.
var fuzzing = flag.Duration("fuzz-rpcs", 8*time.Second, "how long calls are made in any order; ten minutes is the requirement")

// fuzzers is the number of clients that send random calls to a shim at once. All use the same
// few containers and execs.
const (
	fuzzers    = 12
	fuzzedIDs  = 6 // of execs in each container
	unknownApp = "no-such-container"
)

// rpcFuzz is a fuzzed shim.
type rpcFuzz struct {
	shim shimConn
	apps []string
	exec *anypb.Any
	made atomic.Int64 // calls
	fine atomic.Int64 // calls that succeeded

	waits sync.WaitGroup

	mu     sync.Mutex
	errors map[string]int // by method and kind
}

// fuzzedProcess is the process document of an exec of a fuzzed container.
func fuzzedProcess(t *testing.T, spec *specs.Process) *anypb.Any {
	t.Helper()
	p := *spec
	p.Args, p.Terminal = []string{"sleep", "0.05"}, false
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Process", Value: b}
}

// step makes one call.
func (f *rpcFuzz) step(t *testing.T, r *rand.Rand) {
	app, exec := f.apps[r.IntN(len(f.apps))], fmt.Sprintf("x%d", r.IntN(fuzzedIDs))
	if r.IntN(50) == 0 {
		app = unknownApp
	}
	of := exec // or the container itself
	if r.IntN(3) == 0 {
		of = ""
	}
	switch r.IntN(14) {
	case 0, 1:
		f.call(t, "Exec", &taskapi.ExecProcessRequest{ID: app, ExecID: exec, Spec: f.exec, Terminal: r.IntN(4) == 0}, &emptypb.Empty{})
	case 2, 3:
		f.call(t, "Start", &taskapi.StartRequest{ID: app, ExecID: exec}, &taskapi.StartResponse{})
	case 4:
		f.call(t, "Kill", &taskapi.KillRequest{ID: app, ExecID: exec, Signal: uint32(syscall.SIGKILL)}, &emptypb.Empty{})
	case 5:
		f.call(t, "Kill", &taskapi.KillRequest{ID: app, Signal: uint32(syscall.SIGWINCH), All: r.IntN(2) == 0}, &emptypb.Empty{})
	case 6:
		f.call(t, "Delete", &taskapi.DeleteRequest{ID: app, ExecID: exec}, &taskapi.DeleteResponse{})
	case 7:
		f.call(t, "ResizePty", &taskapi.ResizePtyRequest{ID: app, ExecID: of, Width: 80, Height: r.Uint32N(100)}, &emptypb.Empty{})
	case 8:
		f.call(t, "CloseIO", &taskapi.CloseIORequest{ID: app, ExecID: exec, Stdin: true}, &emptypb.Empty{})
	case 9:
		f.call(t, "State", &taskapi.StateRequest{ID: app, ExecID: of}, &taskapi.StateResponse{})
	case 10:
		f.call(t, "Pids", &taskapi.PidsRequest{ID: app}, &taskapi.PidsResponse{})
		f.call(t, "Stats", &taskapi.StatsRequest{ID: app}, &taskapi.StatsResponse{})
	case 11:
		f.call(t, "Pause", &taskapi.PauseRequest{ID: app}, &emptypb.Empty{})
		f.call(t, "Resume", &taskapi.ResumeRequest{ID: app}, &emptypb.Empty{})
	case 12:
		f.wait(t, app, exec)
	case 13:
		f.call(t, "Shutdown", &taskapi.ShutdownRequest{ID: app}, &emptypb.Empty{})
		f.call(t, "Connect", &taskapi.ConnectRequest{ID: app}, &taskapi.ConnectResponse{})
	}
}

// call sends a request that must be answered: with success, or with an error that says what is
// wrong with the request.
func (f *rpcFuzz) call(t *testing.T, method string, request, response any) {
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.Background(), f.shim.namespace), wait.Patience)
	defer cancel()
	err := errgrpc.ToNative(f.shim.client.Call(ctx, f.shim.service, method, request, response))
	f.made.Add(1)
	switch {
	case err == nil:
		f.fine.Add(1)
		return
	case ctx.Err() != nil:
		t.Errorf("%s is not answered within %s: %+v", method, wait.Patience, request)
	case errdefs.IsNotFound(err), errdefs.IsAlreadyExists(err), errdefs.IsFailedPrecondition(err):
	default:
		t.Errorf("%s: %v: %+v", method, err, request)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errors[method]++
}

// wait begins a Wait for an exec. All such calls return when the exec has ended or was deleted.
func (f *rpcFuzz) wait(t *testing.T, app, exec string) {
	f.made.Add(1)
	f.waits.Go(func() {
		ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.Background(), f.shim.namespace), *fuzzing+2*wait.Patience)
		defer cancel()
		_ = f.shim.client.Call(ctx, f.shim.service, "Wait", &taskapi.WaitRequest{ID: app, ExecID: exec}, &taskapi.WaitResponse{})
		if ctx.Err() != nil {
			t.Errorf("Wait for exec %s in %s does not end with it", exec, app)
		}
	})
}

// settle ends the containers and execs that the fuzzers have left.
func (f *rpcFuzz) settle(t *testing.T) {
	t.Helper()
	for _, app := range f.apps {
		ask := func(method string, request, response any) {
			ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.Background(), f.shim.namespace), wait.Patience)
			defer cancel()
			_ = f.shim.client.Call(ctx, f.shim.service, method, request, response) // there may be nothing to end
		}
		ask("Resume", &taskapi.ResumeRequest{ID: app}, &emptypb.Empty{})
		for i := range fuzzedIDs {
			exec := fmt.Sprintf("x%d", i)
			wait.Observe(t, exec+" can be deleted", func() (bool, string) {
				ask("Kill", &taskapi.KillRequest{ID: app, ExecID: exec, Signal: uint32(syscall.SIGKILL)}, &emptypb.Empty{})
				ask("Delete", &taskapi.DeleteRequest{ID: app, ExecID: exec}, &taskapi.DeleteResponse{})
				var state taskapi.StateResponse
				ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.Background(), f.shim.namespace), wait.Patience)
				defer cancel()
				err := errgrpc.ToNative(f.shim.client.Call(ctx, f.shim.service, "State", &taskapi.StateRequest{ID: app, ExecID: exec}, &state))
				return errdefs.IsNotFound(err), fmt.Sprint(state.Status, err)
			})
		}
	}
	f.waits.Wait()
}

// Calls in any order, for any process, from many clients at once are all answered in time, with
// meaningful errors. No call waits for another for ever, and afterwards the shim has no more
// files and goroutines than before (moby#40145, containerd#3572, containerd#4434,
// containerd#13293; requirements.md#N6).
func TestCallsInAnyOrderAreAllAnswered(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		name := "group-" + c.id()
		f := &rpcFuzz{errors: map[string]int{}}
		var tasks []containerd.Task
		for range 3 {
			task := c.running(t, []string{"testprog", "sleep", "1000"}, group(name))
			tasks = append(tasks, task)
			f.apps = append(f.apps, task.ID())
			f.exec = fuzzedProcess(t, process(t, ctx, task))
		}
		pid := c.shim(t, f.apps[0])
		f.shim = c.dialShim(t, c.daemon.Bundle(f.apps[0]))
		defer f.shim.client.Close()
		for range 30 {
			f.step(t, rand.New(rand.NewPCG(1, 1)))
		}
		f.settle(t)
		files, goroutines := c.descriptors(t, pid), c.goroutines(t, pid, name)

		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		until := time.Now().Add(*fuzzing)
		var wg sync.WaitGroup
		for i := range fuzzers {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			wg.Go(func() {
				for time.Now().Before(until) && !t.Failed() {
					f.step(t, r)
				}
			})
		}
		wg.Wait()
		f.settle(t)
		t.Logf("%d calls, of which %d succeeded; errors of %v", f.made.Load(), f.fine.Load(), f.errors)
		if f.fine.Load() < 100 {
			t.Errorf("%d calls succeeded", f.fine.Load())
		}
		c.expectAsBefore(t, pid, name, files, goroutines)
		for _, task := range tasks {
			expectStatus(t, ctx, task, containerd.Running)
			c.killAndDrop(t, task)
		}
	})
}
