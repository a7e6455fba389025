package conformance

import (
	"reflect"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Unchecked is a field that the features document declares and whose effect no check
// has verified.
type Unchecked struct {
	Field  string `json:"field"`
	Reason Reason `json:"reason"`
	Words  string `json:"words"`
}

// unchecked lists the fields whose effect no check can see. A pointer covers everything
// below it.
func unchecked() []Unchecked {
	return []Unchecked{
		{"/process/capabilities/effective", Invisible, "the kernel computes them anew when it executes the program"},
		{"/process/execCPUAffinity/initial", Invisible, "it holds until the program is executed"},
		{"/process/scheduler/priority", NoMachine, "it needs a budget of real time"},
		{"/process/scheduler/runtime", NoMachine, "it needs a budget of real time"},
		{"/process/scheduler/deadline", NoMachine, "it needs a budget of real time"},
		{"/process/scheduler/period", NoMachine, "it needs a budget of real time"},
		{"/linux/intelRdt", NoMachine, "it needs a processor that has it"},
		{"/linux/resources/cpu/realtimeRuntime", NoMachine, "it needs a budget of real time"},
		{"/linux/resources/cpu/realtimePeriod", NoMachine, "it needs a budget of real time"},
		{"/linux/resources/memory/kernel", Invisible, "the kernel has no such limit any more"},
		{"/linux/resources/memory/useHierarchy", Invisible, "the kernel does nothing else"},
		{"/linux/resources/memory/checkBeforeUpdate", Invisible, "it only matters for an update"},
		{"/linux/resources/blockIO/leafWeight", NoMachine, "it needs a kernel before Linux 5.0"},
		{"/linux/resources/blockIO/weightDevice/*/leafWeight", NoMachine, "it needs a kernel before Linux 5.0"},
		{"/linux/personality/flags", Invisible, "the specification defines none"},
		{"/linux/seccomp/architectures", NoMachine, "it needs a program for another architecture"},
		{"/linux/seccomp/flags", Invisible, "the kernel does not show them"},
		{"/vm", NoMachine, "it needs files of a virtual machine"},
	}
}

// leaf is a field of config.json without fields below it.
type leaf struct {
	pointer string
	path    []int // of the fields of the Go structs
}

// leaves lists the fields of config.json that containers on Linux can have.
func leaves() []leaf {
	var all []leaf
	var walk func(t reflect.Type, pointer string, path []int)
	walk = func(t reflect.Type, pointer string, path []int) {
		switch t.Kind() {
		case reflect.Pointer:
			walk(t.Elem(), pointer, path)
			return
		case reflect.Slice, reflect.Map:
			if t.Kind() == reflect.Map || t.Elem().Kind() == reflect.Struct {
				walk(t.Elem(), pointer+"/*", path)
				return
			}
		case reflect.Struct:
			for f := range t.Fields() {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				pointer := pointer
				if !f.Anonymous {
					pointer += "/" + name
				}
				platform, listed := f.Tag.Lookup("platform")
				if !listed || strings.Contains(platform, "linux") || platform == "vm" {
					walk(f.Type, pointer, append(slices.Clone(path), f.Index[0]))
				}
			}
			return
		}
		all = append(all, leaf{pointer, path})
	}
	walk(reflect.TypeFor[specs.Spec](), "", nil)
	return all
}

// spec returns a spec that asks only for the field.
func (l *leaf) spec() *specs.Spec {
	s := &specs.Spec{}
	v := reflect.ValueOf(s).Elem()
	ask(v, l.path)
	return s
}

// ask sets v, or the field below it to which a path leads, to a value that asks for
// something.
func ask(v reflect.Value, path []int) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		ask(v.Elem(), path)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		ask(v.Index(0), path)
	case reflect.Map:
		element := reflect.New(v.Type().Elem()).Elem()
		ask(element, path)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("x").Convert(v.Type().Key()), element)
	case reflect.Struct:
		ask(v.Field(path[0]), path[1:])
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.Set(reflect.ValueOf(1).Convert(v.Type()))
	}
}

// covers reports whether one of the pointers is the field or an ancestor of it.
func covers(pointers []string, field string) bool {
	return slices.ContainsFunc(pointers, func(p string) bool { return field == p || strings.HasPrefix(field, p+"/") })
}
