package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

const mebibyte = 1 << 20

// elastic is a machine of tests that can be resized. log has what it and its guest were told.
type elastic struct {
	mu   sync.Mutex
	log  []string
	fail error
}

func (e *elastic) Resize(_ context.Context, cpus int, memory int64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fail != nil {
		return e.fail
	}
	e.log = append(e.log, fmt.Sprintf("machine %d %d", cpus, memory/mebibyte))
	return nil
}

// expect compares what was told since the last call.
func (e *elastic) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.Equal(e.log, want) {
		t.Errorf("%s: %q, want %q", when, e.log, want)
	}
	e.log = nil
}

// elasticWorld returns a supervisor whose machine has 1 processor and 512 MiB, and at most 4 and 1024.
func elasticWorld(t *testing.T) (*world, *elastic) {
	w, e := newWorld(t), &elastic{}
	w.s.Resizer = e
	w.s.Sizes = Sizes{Base: Size{1, 512 * mebibyte}, Boot: Size{1, 512 * mebibyte}, Max: Size{4, 1024 * mebibyte}}
	w.s.size = w.s.Sizes.Boot
	w.guest.on(sizeCall, func(s *channel.Stream, h *channel.Header) {
		e.mu.Lock()
		e.log = append(e.log, fmt.Sprint("guest ", h.Size.CPUs))
		e.mu.Unlock()
		say(s, "exit", "0")
	})
	for _, call := range []abi.Entrypoint{abi.AppAdd, abi.AppUpdate, abi.AppRm} {
		w.guest.on(call, func(s *channel.Stream, h *channel.Header) {
			e.mu.Lock()
			e.log = append(e.log, string(call))
			e.mu.Unlock()
			succeed(s, h)
		})
	}
	return w, e
}

// limited adds an app with limits: thousandths of a processor, and MiB.
func (w *world) limited(app string, cpu, memory int) error {
	resources := fmt.Sprintf(`{"resources":{"cpu":{"quota":%d,"period":1000},"memory":{"limit":%d}},"namespaces"`, cpu, memory*mebibyte)
	return w.call(w.t.Context(), &abi.Request{
		Entrypoint: abi.AppAdd, App: app, Spec: abi.RawJSON(strings.Replace(spec(), `{"namespaces"`, resources, 1)),
	}, null(w.t))
}

func (w *world) updateLimits(app, resources string) error {
	return w.call(w.t.Context(), &abi.Request{Entrypoint: abi.AppUpdate, App: app, Resources: abi.RawJSON(resources)}, [3]*os.File{})
}

func TestAMachineHasItsOwnSizeAndThatOfTheLimitsOfItsApps(t *testing.T) {
	w, e := elasticWorld(t)
	w.add("plain")
	e.expect(t, "an app without limits", "app/add")
	if err := w.limited("a", 500, 100); err != nil {
		t.Fatal(err)
	}
	e.expect(t, "an app with limits", "machine 2 612", "guest 2", "app/add")
	if err := w.limited("b", 600, 11); err != nil {
		t.Fatal(err)
	}
	e.expect(t, "another one", "machine 3 624", "guest 3", "app/add")
	if err := w.updateLimits("b", `{"memory":{"limit":209715200}}`); err != nil {
		t.Fatal(err)
	}
	e.expect(t, "a higher limit", "machine 3 812", "guest 3", "app/update")
	if err := w.updateLimits("b", `{"cpu":{"quota":100}}`); err != nil {
		t.Fatal(err)
	}
	e.expect(t, "a lower limit", "app/update", "machine 2 812", "guest 2")
	if err := w.updateLimits("b", `{"memory":{"limit":0},"cpu":{"shares":7}}`); err != nil {
		t.Fatal(err)
	}
	e.expect(t, "no other limit", "app/update")
	if err := w.updateLimits("b", `{"memory":{"limit":-1},"cpu":{"quota":-1}}`); err != nil {
		t.Fatal(err)
	}
	e.expect(t, "limits that are removed", "app/update", "machine 2 612", "guest 2")
	w.tell("exit a code=0")
	_ = w.next()
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppRm, App: "a"}, [3]*os.File{}); err != nil {
		t.Fatal(err)
	}
	e.expect(t, "an app that is removed", "app/rm", "machine 1 512", "guest 1")
}

func TestAMachineThatDoesNotGrowRefusesLimitsThatAreLarger(t *testing.T) {
	w, e := elasticWorld(t)
	w.s.Sizes = Sizes{Base: Size{1, 256 * mebibyte}, Boot: Size{2, 512 * mebibyte}, Max: Size{4, 1024 * mebibyte}}.Fix()
	if err := w.limited("a", 1500, 400); err != nil {
		t.Fatal(err)
	}
	e.expect(t, "an app that fits", "app/add")
	for _, c := range []struct {
		cpu, memory int
		want        string
	}{
		{500, 113, "linux.resources.memory: the limits of the apps are 513 MiB, and the machine, which does not grow, has 512:"},
		{501, 1, "linux.resources.cpu: the limits of the apps are 2.001 processors, and the machine, which does not grow, has 2:"},
	} {
		if err := w.limited("b", c.cpu, c.memory); serve.CodeOf(err) != abi.ExitNotImplemented || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, without %q", err, c.want)
		}
	}
	if err := w.updateLimits("a", `{"memory":{"limit":536870913}}`); serve.CodeOf(err) != abi.ExitNotImplemented {
		t.Errorf("a higher limit: %v", err)
	}
	e.expect(t, "limits that are refused")
	if err := w.limited("c", 500, 112); err != nil {
		t.Errorf("an app that fits beside the first one: %v", err)
	}
	// Clients write large numbers in place of no limit.
	if err := w.updateLimits("a", `{"memory":{"limit":9223372036854771712}}`); err != nil {
		t.Errorf("no limit: %v", err)
	}
	if err := w.limited("b", 1, 401); serve.CodeOf(err) != abi.ExitNotImplemented {
		t.Errorf("an app that is larger than the rest, beside one without a limit: %v", err)
	}
	e.expect(t, "what fits", "app/add", "app/update")
}

func TestACallThatFailsGivesTheSizeOfTheMachineBack(t *testing.T) {
	w, e := elasticWorld(t)
	refuse := func(s *channel.Stream, h *channel.Header) { say(s, "error", "no", "exit", "1") }
	w.guest.on(abi.AppAdd, refuse)
	if err := w.limited("a", 1000, 100); err == nil {
		t.Fatal("the app was added")
	}
	e.expect(t, "an app that cannot be added", "machine 2 612", "guest 2", "machine 1 512", "guest 1")
	w.guest.on(abi.AppAdd, succeed)
	w.add("a")
	w.guest.on(abi.AppUpdate, refuse)
	if err := w.updateLimits("a", `{"memory":{"limit":209715200}}`); err == nil {
		t.Fatal("the limits were changed")
	}
	e.expect(t, "limits that cannot be changed", "machine 1 712", "guest 1", "machine 1 512", "guest 1")
	w.guest.on(abi.AppUpdate, succeed)
	if err := w.updateLimits("a", `{"memory":{"limit":[]}}`); err == nil {
		t.Fatal("malformed limits were set")
	}
	e.expect(t, "malformed limits")
}

func TestAMachineThatCannotBeResizedRefusesTheApp(t *testing.T) {
	w, e := elasticWorld(t)
	e.fail = errors.New("QEMU says no")
	err := w.limited("a", 1000, 100)
	if err == nil || !strings.Contains(err.Error(), "give the machine 2 processors and 612 MiB: QEMU says no") {
		t.Errorf("the error is %v", err)
	}
	if n := len(w.s.Children.All()); n > 0 || w.guest.wasAsked(abi.AppAdd) {
		t.Errorf("%d proxies are left, and the guest was asked: %v", n, w.guest.wasAsked(abi.AppAdd))
	}
	e.fail = nil
	e.expect(t, "the refusal")
	// After a failure the size is unknown, and is set again.
	w.add("b")
	e.expect(t, "the next app", "machine 1 512", "guest 1", "app/add")
}

func TestTheLogSaysThatAMachineGetsLessThanTheLimitsAskFor(t *testing.T) {
	w, e := elasticWorld(t)
	var log bytes.Buffer
	w.s.Log = &log
	if err := w.limited("a", 7500, 4096); err != nil {
		t.Fatal(err)
	}
	e.expect(t, "an app of 4 GiB", "machine 4 1024", "guest 4", "app/add")
	if !strings.Contains(log.String(), "7.500 processors and 4096 MiB") || !strings.Contains(log.String(), "it gets 4 processors and 1024 MiB") {
		t.Errorf("the log has %q", log.String())
	}
}

func TestLimitsInTheWordsOfVersion2CountForTheSizeOfAMachine(t *testing.T) {
	limit, quota := int64(64*mebibyte), int64(1000)
	r := &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}, CPU: &specs.LinuxCPU{Quota: &quota}}
	for _, test := range []struct {
		files map[string]string
		want  demand
	}{
		{nil, demand{10, limit}},
		{map[string]string{"memory.max": "134217728", "cpu.max": "150000 50000"}, demand{3000, 128 * mebibyte}},
		{map[string]string{"memory.max": "max", "cpu.max": "max"}, demand{}},
		{map[string]string{"memory.max": "much", "cpu.max": ""}, demand{10, limit}},
	} {
		r.Unified = test.files
		if got := (limits{}).with(r).demand(); got != test.want {
			t.Errorf("%v: %+v, want %+v", test.files, got, test.want)
		}
	}
}

func TestALimitThatStandsForNoneIsNoMoreThanAMachineCanHave(t *testing.T) {
	z := Sizes{Base: Size{1, mebibyte}, Boot: Size{1, mebibyte}, Max: Size{8, 64 * mebibyte}}
	huge := limits{memory: 1<<63 - 1, quota: 1<<63 - 1, period: 1}.demand()
	var sum demand
	for range 10_000 {
		sum = sum.plus(huge)
	}
	if got, less := z.fitting(sum); got != z.Max || !less {
		t.Errorf("%+v gives %+v", sum, got)
	}
}
