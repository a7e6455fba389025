package manager

import (
	"strings"
	"testing"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	runc "github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
	"github.com/rkt/containerd-shim-rkt-v1/options"
)

const (
	plainShim = "/bin/containerd-shim-rkt-v1"
	ociShim   = "/bin/containerd-shim-rkt-oci-v1"
)

// requirements.md#B17
func TestTheShimCgroupIsFoundInEveryMessage(t *testing.T) {
	for _, m := range []proto.Message{
		&options.Options{ShimCgroup: "/shims"},
		&runc.Options{ShimCgroup: "/shims"},
		&runtimeoptions.Options{ConfigBody: []byte("ShimCgroup = '/shims'")},
	} {
		packed, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		// What comes before may be another extension, and is not refused here.
		o, err := runtimeOptions([]early.Extension{{TypeURL: "example.com/Other"}, {TypeURL: packed.TypeUrl, Value: packed.Value}})
		if err != nil || o.ShimCgroup != "/shims" || o.Stage1 != "" {
			t.Errorf("%v: cgroup %q, asked for %q, %v", m, o.ShimCgroup, o.Stage1, err)
		}
	}
}

// requirements.md#O1
func TestStartHandsTheServerTheStage1OfTheOptions(t *testing.T) {
	d := newDaemon(t)
	p := d.params("default", "c1")
	if err := p.AddExtension(&options.Options{Stage1: "oci"}); err != nil {
		t.Fatal(err)
	}
	address := d.startWith(d.bundle("default", "c1", nil), p)
	if got := connect(t, address).connect().Version; !strings.HasPrefix(got, "default|c1|c1|oci|") {
		t.Errorf("the server was handed %q", got)
	}
}

// requirements.md#O1
func TestStartRefusesOptionsThatCannotBeRight(t *testing.T) {
	for _, c := range []struct {
		argv0 string
		value proto.Message
		want  string
	}{
		{ociShim, &options.Options{Stage1: "native"}, "has oci"},
		{plainShim, &runtimeoptions.Options{ConfigPath: "/no/such/file"}, "/no/such/file"},
	} {
		d := newDaemon(t)
		d.argv0 = c.argv0
		p := d.params("default", "c1")
		if err := p.AddExtension(c.value); err != nil {
			t.Fatal(err)
		}
		d.refused(p, c.want)
	}
}

// refused calls `start`, which must fail with a text and leave no server.
func (d *daemon) refused(p *bootapi.BootstrapParams, want string) {
	d.t.Helper()
	stdin, err := proto.Marshal(p)
	if err != nil {
		d.t.Fatal(err)
	}
	out := d.call(d.bundle("default", "c1", nil), "default", "c1", stdin, nil, "start")
	if out.err == nil || !strings.Contains(string(out.stderr), want) {
		d.t.Errorf("start ended with %v, stderr %q, want %q in it", out.err, out.stderr, want)
	}
}
