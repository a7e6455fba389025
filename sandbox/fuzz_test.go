package sandbox_test

import (
	"reflect"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/sandbox"
	"github.com/rkt/containerd-shim-rkt-v1/wire"
)

// messages are those that come from a client.
func messages() []any {
	return []any{
		&sandbox.PodSandboxConfig{}, &sandbox.CreateSandboxRequest{}, &sandbox.StartSandboxRequest{}, &sandbox.StopSandboxRequest{},
		&sandbox.UpdateSandboxRequest{}, &sandbox.ShutdownSandboxRequest{},
	}
}

// A message that is read and written again has the same fields as before.
func FuzzMessagesAreWrittenAsTheyWereRead(f *testing.F) {
	for _, m := range []any{
		&sandbox.CreateSandboxRequest{SandboxId: "a", BundlePath: "/b", NetnsPath: "/n", Annotations: map[string]string{"k": "v"}},
		&sandbox.PodSandboxConfig{Hostname: "h", Linux: sandbox.LinuxPodSandboxConfig{
			CgroupParent: "/kubepods", Sysctls: map[string]string{"a": "b"},
			SecurityContext: sandbox.LinuxSandboxSecurityContext{NamespaceOptions: sandbox.NamespaceOption{Pid: sandbox.ModeNode}},
		}},
	} {
		text, err := wire.Encode(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte{0xfa, 0x07, 0x01, 'x'}) // an unknown field
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, m := range messages() {
			if wire.Decode(text, m) != nil {
				continue
			}
			written, err := wire.Encode(m)
			if err != nil {
				t.Fatalf("%T: %v", m, err)
			}
			again := reflect.New(reflect.TypeOf(m).Elem()).Interface()
			if err := wire.Decode(written, again); err != nil || !reflect.DeepEqual(m, again) {
				t.Errorf("%T: %+v became %+v, %v", m, m, again, err)
			}
		}
	})
}
