package supervisor

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
)

// A request is either refused, with a text and an exit code of the ABI, or accepted. If it is
// accepted, nothing that it has for the app is lost.
func FuzzARequestIsRefusedOrWhole(f *testing.F) {
	f.Add([]byte(`{"version":7,"entrypoint":"app/add","app":"a","container":"c","rootfs":"/r","bundle":"/b",
		"cgroup":{"version":1,"dirs":["/sys/fs/cgroup/pids/x"]},"options":{"ioUid":5},
		"spec":{"ociVersion":"1.2.0","process":{"args":["true"],"cwd":"/"},"root":{"path":"rootfs"},
		"mounts":[{"destination":"/proc","type":"proc"}],"hooks":{"prestart":[{"path":"/bin/true"}]},
		"linux":{"namespaces":[{"type":"mount"}],"uidMappings":[{"hostID":1,"size":1}]}}}`))
	f.Add([]byte(`{"version":7,"entrypoint":"enter","app":"a","exec":"e","process":{"args":["true"],"cwd":"/"}}`))
	f.Add([]byte(`{"version":7,"entrypoint":"app/signal","app":"a","signal":9}`))
	f.Add([]byte(`{"version":7,"entrypoint":"run","sandbox":{"hostname":"h","namespaces":[{"type":"pid"}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := &abi.Request{}
		if json.Unmarshal(raw, r) != nil {
			return
		}
		if err := checkRequest(r); err != nil {
			if code := serve.CodeOf(err); err.Error() == "" || code != abi.ExitNotImplemented {
				t.Errorf("exit code %d: %q", code, err)
			}
			return
		}
		if r.Version != abi.Version {
			t.Errorf("%+v is taken for one of version %d", r, abi.Version)
		}
		checkSpec(t, r.Spec)
		checkProcess(t, r.Process)
	})
}

// checkSpec checks that a spec that is accepted is the same after it was written and read
// again.
func checkSpec(t *testing.T, raw abi.RawJSON) {
	spec, err := decodeSpec(raw)
	if err != nil {
		return
	}
	if spec.Process == nil || spec.Linux == nil {
		t.Fatalf("%q became %+v", raw, spec)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	again, err := decodeSpec(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if second, err := json.Marshal(again); err != nil || string(second) != string(text) {
		t.Errorf("%s became %s (%v)", text, second, err)
	}
}

func checkProcess(t *testing.T, raw abi.RawJSON) {
	process, err := decodeProcess(raw)
	if err != nil {
		return
	}
	text, err := json.Marshal(process)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := decodeProcess(text); err != nil || !reflect.DeepEqual(again.Args, process.Args) && len(process.Args) > 0 {
		t.Errorf("%+v became %+v (%v)", process, again, err)
	}
}
