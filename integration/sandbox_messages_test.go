package integration

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	sandboxapi "github.com/containerd/containerd/api/runtime/sandbox/v1"
	"google.golang.org/protobuf/reflect/protoreflect"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The shim has copies of messages whose packages would link gRPC (docs/adr/0010). Each field of
// a copy must be the same as in the original.

var protoField = regexp.MustCompile(`^\s+(repeated )?(map<string, ([\w.]+)>|[\w.]+) (\w+) = (\d+);`)

func TestOurMessagesOfTheSandboxServiceAreContainerds(t *testing.T) {
	file := (&sandboxapi.CreateSandboxRequest{}).ProtoReflect().Descriptor().ParentFile()
	fields := compareProto(t, "../sandbox/sandbox.proto", file)
	// The copy has all fields of the service, except a sandbox's own root, fields that the shim
	// does not read, and deprecated ones.
	left := map[string]bool{
		"CreateSandboxRequest.rootfs": true, "SandboxStatusResponse.extra": true,
		"UpdateSandboxRequest.resources": true, "UpdateSandboxRequest.annotations": true,
	}
	for i := range file.Messages().Len() {
		m := file.Messages().Get(i)
		for j := range m.Fields().Len() {
			name := string(m.Name()) + "." + string(m.Fields().Get(j).Name())
			if !fields[name] && !left[name] {
				t.Errorf("containerd's %s is not among ours", name)
			}
		}
	}
	service := file.Services().ByName("Sandbox")
	if string(service.FullName()) != "containerd.runtime.sandbox.v1.Sandbox" || service.Methods().Len() != 10 {
		t.Errorf("the service is %s with %d methods", service.FullName(), service.Methods().Len())
	}
}

func TestOurPartOfCRIsMessagesIsCRIs(t *testing.T) {
	file := (&cri.PodSandboxConfig{}).ProtoReflect().Descriptor().ParentFile()
	if fields := compareProto(t, "../sandbox/cri.proto", file); len(fields) < 25 {
		t.Errorf("found %d fields only: %v", len(fields), fields)
	}
	if name := (&cri.PodSandboxConfig{}).ProtoReflect().Descriptor().FullName(); name != "runtime.v1.PodSandboxConfig" {
		t.Errorf("CRI calls its message %s", name)
	}
}

// compareProto compares every field and value of a .proto file with a descriptor,
// and returns the names of the fields.
func compareProto(t *testing.T, path string, file protoreflect.FileDescriptor) map[string]bool {
	t.Helper()
	seen := map[string]bool{}
	var message protoreflect.MessageDescriptor
	var enum protoreflect.EnumDescriptor
	for line := range strings.SplitSeq(read(t, path), "\n") {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "message "):
			if message = file.Messages().ByName(protoreflect.Name(words[1])); message == nil {
				t.Fatalf("%s: there is no message %s", path, words[1])
			}
			if strings.HasSuffix(line, "{}") {
				message = nil
			}
		case strings.HasPrefix(line, "enum "):
			if enum = file.Enums().ByName(protoreflect.Name(words[1])); enum == nil {
				t.Fatalf("%s: there is no enum %s", path, words[1])
			}
		case strings.HasPrefix(line, "}"):
			message, enum = nil, nil
		case enum != nil:
			v := enum.Values().ByName(protoreflect.Name(words[0]))
			if v == nil || words[2] != strconv.Itoa(int(v.Number()))+";" {
				t.Errorf("%s: %s", path, strings.TrimSpace(line))
			}
		case message != nil:
			m := protoField.FindStringSubmatch(line)
			if m == nil {
				t.Errorf("%s: %q is not understood", path, line)
				continue
			}
			f := message.Fields().ByName(protoreflect.Name(m[4]))
			if f == nil || strconv.Itoa(int(f.Number())) != m[5] || f.IsMap() != (m[3] != "") || f.IsList() != (m[1] != "") {
				t.Errorf("%s: %s: %s", path, message.Name(), strings.TrimSpace(line))
				continue
			}
			kind := m[2]
			if f.IsMap() {
				kind, f = m[3], f.MapValue()
			}
			if typeName(f) != kind[strings.LastIndexByte(kind, '.')+1:] {
				t.Errorf("%s: %s.%s is a %s, and not a %s", path, message.Name(), f.Name(), typeName(f), kind)
			}
			seen[string(message.Name())+"."+m[4]] = true
		}
	}
	return seen
}

func typeName(f protoreflect.FieldDescriptor) string {
	switch {
	case f.Message() != nil:
		return string(f.Message().Name())
	case f.Enum() != nil:
		return string(f.Enum().Name())
	}
	return f.Kind().String()
}
