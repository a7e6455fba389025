package supervisor

import (
	"encoding/json"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc/nofile"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// The limits of an app's and an exec's spec count, and the others are those with which this process was started.
func TestProcessesHaveTheHostsLimitsWhereTheirSpecHasNone(t *testing.T) {
	w := newWorld(t)
	var host unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &host); err != nil {
		t.Fatal(err)
	}
	expect := func(whose string, p *specs.Process, own specs.POSIXRlimit) {
		t.Helper()
		got := map[string]specs.POSIXRlimit{}
		for _, l := range p.Rlimits {
			if _, twice := got[l.Type]; twice {
				t.Errorf("%s has %s twice", whose, l.Type)
			}
			got[l.Type] = l
		}
		for _, want := range []specs.POSIXRlimit{
			{Type: "RLIMIT_MEMLOCK", Soft: host.Cur, Hard: host.Max},
			{Type: "RLIMIT_NOFILE", Soft: nofile.Original[0], Hard: nofile.Original[1]},
			own,
		} {
			if got[want.Type] != want {
				t.Errorf("%s has the limit %+v, want %+v", whose, got[want.Type], want)
			}
		}
		if len(got) != 16 {
			t.Errorf("%s has %d limits, want 16", whose, len(got))
		}
	}
	w.guest.on(abi.AppAdd, func(s *channel.Stream, h *channel.Header) {
		var spec specs.Spec
		if err := json.Unmarshal(h.Call.Spec, &spec); err != nil {
			t.Error(err)
		}
		expect("the app", spec.Process, specs.POSIXRlimit{Type: "RLIMIT_CORE", Soft: 1, Hard: 2})
		succeed(s, h)
	})
	w.guest.on(abi.Enter, func(s *channel.Stream, h *channel.Header) {
		var p specs.Process
		if err := json.Unmarshal(h.Call.Process, &p); err != nil {
			t.Error(err)
		}
		expect("the exec", &p, specs.POSIXRlimit{Type: "RLIMIT_NPROC", Soft: 3, Hard: 4})
		succeed(s, h)
	})
	r := with(t, func(s *specs.Spec) { s.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_CORE", Soft: 1, Hard: 2}} })
	for _, r := range []*abi.Request{
		{Entrypoint: abi.AppAdd, App: "a", Spec: r.Spec},
		{Entrypoint: abi.Enter, App: "a", Exec: "e", Process: abi.RawJSON(`{"args":["x"],"cwd":"/","rlimits":[{"type":"RLIMIT_NPROC","soft":3,"hard":4}]}`)},
	} {
		if err := w.call(t.Context(), r, null(t)); err != nil {
			t.Fatal(err)
		}
	}
}
