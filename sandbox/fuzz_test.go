package sandbox_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/rkt/containerd-shim-rkt-v1/sandbox"
)

// messages are those that come from a client.
func messages() []proto.Message {
	return []proto.Message{
		&sandbox.PodSandboxConfig{}, &sandbox.CreateSandboxRequest{}, &sandbox.StartSandboxRequest{}, &sandbox.StopSandboxRequest{},
		&sandbox.UpdateSandboxRequest{}, &sandbox.ShutdownSandboxRequest{},
	}
}

// If a message is read and written again, all of its fields are the same as before, also
// those that a later release has added.
func FuzzMessagesAreWrittenAsTheyWereRead(f *testing.F) {
	text, err := proto.Marshal(&sandbox.CreateSandboxRequest{SandboxId: "a", BundlePath: "/b", NetnsPath: "/n", Annotations: map[string]string{"k": "v"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	text, err = proto.Marshal(&sandbox.PodSandboxConfig{Hostname: "h", Linux: &sandbox.LinuxPodSandboxConfig{
		CgroupParent: "/kubepods", Sysctls: map[string]string{"a": "b"},
		SecurityContext: &sandbox.LinuxSandboxSecurityContext{NamespaceOptions: &sandbox.NamespaceOption{Pid: sandbox.NamespaceMode_NODE}},
	}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte{0xfa, 0x07, 0x01, 'x'}) // a field that nobody knows
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, m := range messages() {
			if proto.Unmarshal(text, m) != nil {
				continue
			}
			written, err := proto.Marshal(m)
			if err != nil {
				t.Fatalf("%T: %v", m, err)
			}
			again := m.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(written, again); err != nil || !proto.Equal(m, again) {
				t.Errorf("%T: %v became %v, %v", m, m, again, err)
			}
		}
	})
}
