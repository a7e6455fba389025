package supervisor

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// A request is refused with words and an exit code of the ABI, or is one of the call; what
// it carries for the app is refused, or is whole.
func FuzzARequestIsRefusedOrTheCalls(f *testing.F) {
	f.Add([]byte(`{"version":7,"entrypoint":"app/add","app":"a","container":"c","rootfs":"/r","bundle":"/b",
		"cgroup":{"version":1,"dirs":["/sys/fs/cgroup/pids/x"]},"options":{"ioUid":5},
		"spec":{"ociVersion":"1.2.0","process":{"args":["true"],"cwd":"/"},"root":{"path":"rootfs"},
		"mounts":[{"destination":"/proc","type":"proc"}],"hooks":{"prestart":[{"path":"/bin/true"}]},
		"linux":{"namespaces":[{"type":"mount"}],"uidMappings":[{"hostID":1,"size":1}]}}}`), string(abi.AppAdd))
	f.Add([]byte(`{"version":7,"entrypoint":"enter","app":"a","exec":"e","process":{"args":["true"],"cwd":"/"}}`), string(abi.Enter))
	f.Add([]byte(`{"version":7,"entrypoint":"app/signal","app":"a","signal":9}`), string(abi.AppSignal))
	f.Add([]byte(`{"version":7,"entrypoint":"run","sandbox":{"hostname":"h","namespaces":[{"type":"pid"}]}}`), string(abi.Run))
	f.Fuzz(func(t *testing.T, raw []byte, entrypoint string) {
		file, err := proc.Memory("request", raw)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		e := abi.Entrypoint(entrypoint)
		r, err := readRequest(file, e)
		if err != nil {
			if code := codeOf(err); err.Error() == "" || code != 1 && code != abi.ExitNotImplemented {
				t.Errorf("exit code %d: %q", code, err)
			}
			return
		}
		if r.Version != abi.Version || r.Entrypoint != e {
			t.Errorf("%+v is taken for one of %s", r, e)
		}
		checkSpec(t, r.Spec)
		checkProcess(t, r.Process)
	})
}

// checkSpec checks that a spec which is taken says the same when it is read again.
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

func TestARequestWithoutMeasureIsRefused(t *testing.T) {
	file, err := proc.Memory("request", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const size = 1 << 50 // for which there is no memory
	if err := unix.Ftruncate(int(file.Fd()), size); err != nil {
		t.Fatal(err)
	}
	if _, err := readRequest(file, abi.AppAdd); err == nil {
		t.Error("it was taken")
	}
	if _, err := readRequest((*os.File)(nil), abi.AppAdd); err == nil {
		t.Error("a request that is not there was taken")
	}
}
