package rktabi

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

// fieldsPage is the document with a table of all fields and what happens to each.
const fieldsPage = "../../docs/stage1-appc.md"

var fieldRow = regexp.MustCompile("^\\| `(/[\\w/*]+)` \\| (translated|stage 0|refused|nothing) \\| (translated|stage 0|refused|nothing) \\| .*\\|$")

// told returns everything that a stage1 image of rkt learns of a config.json: the app in the
// manifest, and the arguments and the environment of `run`. It returns an error if the
// config.json is refused. Nothing is executed or mounted.
func told(s *stage1.Stage1, of *specs.Spec) (string, error) {
	raw, err := json.Marshal(of)
	if err != nil {
		return "", err
	}
	app, err := spec.Read[specs.Spec](raw)
	if err != nil {
		return "", err
	}
	if _, err := s.CheckSpec(app); err != nil {
		return "", err
	}
	c := pod.Call{Request: abi.Request{App: "a", Bundle: "/bundle", Pod: "uuid"}, Spec: app}
	made, err := immutable.NewInSpace(s).Compose(c, s.Mutable())
	if err != nil {
		return "", err
	}
	k := &stage1.Call{Stage1: s, Entrypoint: abi.Run, Call: c}
	text, err := json.Marshal(made.App)
	if err != nil {
		return "", err
	}
	env, err := s.Dialect.Environment(k)
	return fmt.Sprintf("%s %q %q", text, s.Dialect.Arguments(k), env), err
}

// plain is a spec that asks for nothing beside a program.
func plain() *specs.Spec {
	return &specs.Spec{
		Process: &specs.Process{Args: []string{"/bin/true"}, Cwd: "/"}, Root: &specs.Root{Path: "rootfs"}, Hooks: &specs.Hooks{},
		Linux: &specs.Linux{MaskedPaths: nil},
	}
}

// valuesOfFields has functions that ask for fields which accept only certain values.
func valuesOfFields() map[string]func(*specs.Spec) {
	mount := func(s *specs.Spec) {
		s.Mounts = []specs.Mount{{Destination: "/v", Type: "bind", Source: "/host", Options: []string{"rbind", "ro"}}}
	}
	mapped := []specs.LinuxIDMapping{{Size: 1}}
	limit := int64(1 << 26)
	return map[string]func(*specs.Spec){
		"/process/cwd":          func(s *specs.Spec) { s.Process.Cwd = "/x" },
		"/process/env":          func(s *specs.Spec) { s.Process.Env = []string{"A=b"} },
		"/process/selinuxLabel": func(s *specs.Spec) { s.Process.SelinuxLabel = "u:r:t:s0" },
		"/process/capabilities": func(s *specs.Spec) {
			set := []string{"CAP_KILL"}
			s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: set, Effective: set, Permitted: set}
		},
		"/mounts/*/destination": mount, "/mounts/*/type": mount, "/mounts/*/source": mount, "/mounts/*/options": mount,
		"/mounts/*/uidMappings": func(s *specs.Spec) { mount(s); s.Mounts[0].UIDMappings = mapped },
		"/mounts/*/gidMappings": func(s *specs.Spec) { mount(s); s.Mounts[0].GIDMappings = mapped },
		"/linux/resources": func(s *specs.Spec) {
			s.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}
		},
		"/linux/seccomp": func(s *specs.Spec) {
			s.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{{Names: []string{"mount"}, Action: specs.ActErrno}}}
		},
	}
}

// asking returns a spec that asks for a field.
func asking(t *testing.T, field string) *specs.Spec {
	t.Helper()
	spec := plain()
	if set, ok := valuesOfFields()[field]; ok {
		set(spec)
		return spec
	}
	v := reflect.ValueOf(spec).Elem()
	for _, word := range strings.Split(field[1:], "/") {
		if v = memberOf(v, word); !v.IsValid() {
			t.Fatalf("%s is no field of the spec", field)
		}
	}
	fill(v)
	return spec
}

// memberOf returns a member of a struct by its name in JSON.
func memberOf(v reflect.Value, name string) reflect.Value {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	for i := range v.NumField() {
		if jsonName(v.Type().Field(i)) == name {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// fill sets a value, and all that is in it, to something that is not empty.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Interface:
		v.Set(reflect.ValueOf("x"))
	default:
		v.Set(reflect.ValueOf(1).Convert(v.Type()))
	}
}

// unanswered returns the fields of a type that have no row in the table.
func unanswered(typ reflect.Type, at string, rows map[string]bool) (fields []string) {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		if typ.Kind() == reflect.Slice {
			at += "/*"
		}
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct {
		return []string{at}
	}
	for i := range typ.NumField() {
		if field := at + "/" + jsonName(typ.Field(i)); !rows[field] {
			fields = append(fields, unanswered(typ.Field(i).Type, field, rows)...)
		}
	}
	return fields
}

func TestEveryFieldOfTheSpecIsToldRktDoneByStage0OrRefused(t *testing.T) {
	stage1test.RequireRoot(t)
	page, err := os.ReadFile(fieldsPage)
	if err != nil {
		t.Fatal(err)
	}
	version := map[string]string{abi.AnnotationVersion: "6"}
	kinds := []*stage1.Stage1{
		stage1Of(t, stage1test.Image{Annotations: version}),
		stage1Of(t, stage1test.Image{Annotations: version, Scripts: stage1test.Scripts{
			abi.AppAdd: ":", abi.AppStart: ":", abi.AppStop: ":", abi.AppRm: ":", abi.Enter: ":", abi.Attach: ":",
		}}),
	}
	if kinds[0].Mutable() || !kinds[1].Mutable() {
		t.Fatal("the images are not an immutable and a mutable one")
	}
	rows := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		m := fieldRow.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			if strings.HasPrefix(line, "| `") {
				t.Errorf("this is no row: %s", line)
			}
			continue
		}
		rows[m[1]] = true
		for i, s := range kinds {
			answers(t, s, m[1], m[2+i])
		}
	}
	for _, field := range unanswered(reflect.TypeFor[specs.Spec](), "", rows) {
		t.Errorf("%s has no row", field)
	}
}

func stage1Of(t *testing.T, i stage1test.Image) *stage1.Stage1 {
	t.Helper()
	opened, err := openStore(t).Image(t.Context(), i.Dir(t), "")
	if err != nil {
		t.Fatal(err)
	}
	return stage1.NewOf(opened, "rkt", children, dialect{})
}

// answers checks that a field is handled as its row says.
func answers(t *testing.T, s *stage1.Stage1, field, fate string) {
	t.Helper()
	kind := map[bool]string{false: "immutable", true: "mutable"}[s.Mutable()]
	s.Abide(stage1.Rules{})
	before, err := told(s, plain())
	if err != nil {
		t.Fatal(err)
	}
	now, err := told(s, asking(t, field))
	switch {
	case fate == "refused":
		if name := strings.ReplaceAll(field, "*", "0"); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s, %s: %v, want it refused by name", field, kind, err)
		}
		s.Abide(stage1.Rules{Excused: []string{field}})
		if _, err := told(s, asking(t, field)); err != nil {
			t.Errorf("%s, %s: though it is accepted: %v", field, kind, err)
		}
	case err != nil:
		t.Errorf("%s, %s: %v; want %s", field, kind, err, fate)
	case fate == "translated" && now == before, fate == "nothing" && now != before:
		t.Errorf("%s, %s: the stage1 is told %s; want %s", field, kind, now, fate)
	}
}
