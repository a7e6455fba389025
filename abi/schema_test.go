package abi

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// schema is the part of JSON schema that request.schema.json uses.
type schema struct {
	Ref        string            `json:"$ref"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
	Type       string            `json:"type"`
	Enum       []any             `json:"enum"`
	Defs       map[string]schema `json:"$defs"`
}

func readSchema(t *testing.T) schema {
	t.Helper()
	text, err := os.ReadFile("request.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var s schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTheSchemaAndTheTypesHaveTheSameFields(t *testing.T) {
	root := readSchema(t)
	compare(t, "request", reflect.TypeFor[Request](), root, root)
}

func compare(t *testing.T, at string, typ reflect.Type, s, root schema) {
	t.Helper()
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		s = root.Defs[name]
	}
	var fields []string
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields = append(fields, name)
		p, ok := s.Properties[name]
		if !ok {
			t.Errorf("%s.%s is not in the schema", at, name)
			continue
		}
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		if ft.Kind() == reflect.Slice && ft.Elem().Kind() == reflect.Struct {
			ft, p = ft.Elem(), *p.Items
		}
		if ft.Kind() == reflect.Struct {
			compare(t, at+"."+name, ft, p, root)
		}
	}
	for name := range s.Properties {
		if !slices.Contains(fields, name) {
			t.Errorf("%s.%s is in the schema and not in the types", at, name)
		}
	}
}

func TestTheSchemaListsEveryEntrypoint(t *testing.T) {
	all := []Entrypoint{
		Run, Enter, GC, Stop, AppAdd, AppStart, AppStop, AppRm, AppSignal,
		AppPause, AppResume, AppUpdate, AppStats, AppCheckpoint, Network, FeaturesProbe,
	}
	var listed []Entrypoint
	for _, e := range readSchema(t).Properties["entrypoint"].Enum {
		listed = append(listed, Entrypoint(e.(string)))
	}
	if !slices.Equal(listed, all) {
		t.Errorf("schema lists %v, the package %v", listed, all)
	}
}

func TestTheProseDescribesEveryFieldAndVariable(t *testing.T) {
	text, err := os.ReadFile("../docs/stage1-abi.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## 4. ")
	section, _, _ := strings.Cut(rest, "\n## 5. ")
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-zA-Z]+)` \\|").FindAllStringSubmatch(section, -1) {
		documented[m[1]] = true
	}
	for f := range reflect.TypeFor[Request]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !documented[name] {
			t.Errorf("field %q has no row in section 4 of docs/stage1-abi.md", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("section 4 of docs/stage1-abi.md documents %q, which is no field", name)
	}
	for _, env := range []string{
		EnvRequest, EnvReadyFD, EnvErrorFD, EnvLockFD, EnvNotifyFD, EnvProcessors, EnvBundle, EnvApp, EnvExec,
		EnvSignal, EnvProcess, EnvCgroup, EnvCgroupUnified, EnvConsoleSocket, EnvCheckpoint, EnvTraceparent, EnvEnterCmd, EnvEnterPID,
	} {
		if !strings.Contains(string(text), "`"+env+"`") {
			t.Errorf("docs/stage1-abi.md does not describe %s", env)
		}
	}
}
