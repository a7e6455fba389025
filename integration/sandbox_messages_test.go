package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
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

func TestOurMessagesOfTheSandboxServiceAreContainerds(t *testing.T) {
	file := (&sandboxapi.CreateSandboxRequest{}).ProtoReflect().Descriptor().ParentFile()
	fields := compareMessages(t, "../sandbox/sandbox.go", file)
	// The copy has all fields of the service, except a sandbox's own root, fields that the shim
	// does not read, and deprecated ones.
	left := map[string]bool{
		"CreateSandboxRequest.rootfs": true, "SandboxStatusResponse.extra": true,
		"UpdateSandboxRequest.resources": true, "UpdateSandboxRequest.annotations": true,
		"UpdateSandboxRequest.sandbox": true, "UpdateSandboxRequest.fields": true,
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
	fields := compareMessages(t, "../sandbox/cri.go", (&cri.PodSandboxConfig{}).ProtoReflect().Descriptor().ParentFile())
	if len(fields) < 25 {
		t.Errorf("found %d fields only: %v", len(fields), fields)
	}
	if name := (&cri.PodSandboxConfig{}).ProtoReflect().Descriptor().FullName(); name != "runtime.v1.PodSandboxConfig" {
		t.Errorf("CRI calls its message %s", name)
	}
	for mode, name := range []string{"POD", "CONTAINER", "NODE", "TARGET"} { // as in cri.go
		if got := cri.NamespaceMode(mode).String(); got != name {
			t.Errorf("the mode %d is %s, and not %s", mode, got, name)
		}
	}
}

// compareMessages compares every field of the structs in a file of ours with a descriptor, and
// returns the names of the fields.
func compareMessages(t *testing.T, path string, file protoreflect.FileDescriptor) map[string]bool {
	t.Helper()
	source, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	ast.Inspect(source, func(n ast.Node) bool {
		s, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		fields, ok := s.Type.(*ast.StructType)
		if !ok {
			return true
		}
		message := file.Messages().ByName(protoreflect.Name(s.Name.Name))
		if message == nil {
			t.Fatalf("%s: there is no message %s", path, s.Name.Name)
		}
		for _, f := range fields.Fields.List {
			seen[compareField(t, message, f)] = true
		}
		return true
	})
	return seen
}

// tagged is the tag of a field: how it is written, and its number.
var tagged = regexp.MustCompile("^`protobuf:\"(varint|bytes),(\\d+)\"`$")

// compareField compares a field of ours with the field that has its number, and returns the
// latter's name, such as PingRequest.sandbox_id.
func compareField(t *testing.T, message protoreflect.MessageDescriptor, f *ast.Field) string {
	t.Helper()
	tag := tagged.FindStringSubmatch(f.Tag.Value)
	if tag == nil {
		t.Fatalf("%s.%s has the tag %s", message.Name(), f.Names[0], f.Tag.Value)
	}
	number, err := strconv.Atoi(tag[2])
	if err != nil {
		t.Fatal(err)
	}
	g := message.Fields().ByNumber(protoreflect.FieldNumber(number))
	if g == nil || !strings.EqualFold(strings.ReplaceAll(string(g.Name()), "_", ""), f.Names[0].Name) {
		t.Fatalf("%s.%s: field %d of the original is %v", message.Name(), f.Names[0], number, g)
	}
	if want := goType(g); typeText(f.Type) != want {
		t.Errorf("%s.%s is a %s, and not a %s", message.Name(), f.Names[0], typeText(f.Type), want)
	}
	if varint := g.Message() == nil && g.Kind() != protoreflect.StringKind; varint != (tag[1] == "varint") {
		t.Errorf("%s.%s has the tag %s", message.Name(), f.Names[0], f.Tag.Value)
	}
	return string(message.Name()) + "." + string(g.Name())
}

// typeText returns the text of a type, without packages and stars.
func typeText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeText(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.ArrayType:
		return "[]" + typeText(e.Elt)
	case *ast.MapType:
		return "map[" + typeText(e.Key) + "]" + typeText(e.Value)
	}
	return e.(*ast.Ident).Name
}

// goType returns the text of a field's type in Go.
func goType(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return "map[" + goType(f.MapKey()) + "]" + goType(f.MapValue())
	case f.IsList() && f.Message() != nil:
		return "[]" + string(f.Message().Name())
	case f.IsList():
		return "[]" + f.Kind().String()
	case f.Message() != nil:
		return string(f.Message().Name())
	case f.Enum() != nil:
		return string(f.Enum().Name())
	}
	return f.Kind().String()
}
