package spec

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/pod/spec/spelling"
)

// Field is a value at its place in the OCI runtime spec. The fields of one document share a
// cache, so only one goroutine may use them.
type Field struct {
	Value
	of    reflect.Type // the type that specs-go has at this place; nil where any value may be
	asks  bool         // its presence alone asks for something
	known lookups
}

// lookups caches the fields of specs-go's structs.
type lookups map[reflect.Type]map[string]reflect.Type

// Top returns the whole document as a field.
func (d *Document[T]) Top() Field {
	return Field{Value: d.Root, of: reflect.TypeFor[T](), known: lookups{}}
}

// Member returns the current member or element of a cursor over this field, with the name
// that the spec has for it. A name may differ in case from the spec's, because
// encoding/json ignores case, in stage 0 and in most OCI runtimes. ok is false for a member
// that no known version of the spec has.
func (f Field) Member(m *Members) (inner Field, name []byte, ok bool) {
	inner, name = Field{Value: m.Value, known: f.known}, m.Name()
	if f.of == nil {
		return inner, name, true
	}
	switch f.of.Kind() {
	case reflect.Struct:
		if name, inner.of, ok = f.find(name); !ok {
			return inner, name, false
		}
	case reflect.Map, reflect.Slice, reflect.Array:
		inner.of = f.of.Elem()
	default:
		return inner, name, false // encoding/json has refused such a document
	}
	asking := present[f.of]
	inner.asks = slices.Contains(asking, string(name)) || slices.Contains(asking, anyKey)
	for inner.of.Kind() == reflect.Pointer {
		inner.of = inner.of.Elem()
	}
	if inner.of.Kind() == reflect.Interface {
		inner.of = nil
	}
	return inner, name, true
}

// MayHaveUnknown reports whether a member that the spec does not have could be in the field.
func (f Field) MayHaveUnknown() bool {
	t := f.of
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map) {
		t = t.Elem()
	}
	return t != nil && t.Kind() == reflect.Struct && f.HasMembers()
}

// find returns the field of a struct into which encoding/json decodes a member, with its
// name.
func (f Field) find(name []byte) ([]byte, reflect.Type, bool) {
	fields := f.fields()
	if t, ok := fields[string(name)]; ok {
		return name, t, true
	}
	for known, t := range fields {
		if bytes.EqualFold([]byte(known), name) {
			return []byte(known), t, true
		}
	}
	return name, nil, false
}

// Meant returns the name of the field that the author of a misspelt member probably meant,
// or an empty string.
func (f Field) Meant(name string) string {
	if f.of == nil || f.of.Kind() != reflect.Struct {
		return ""
	}
	return spelling.Likely(name, slices.Sorted(maps.Keys(f.fields())))
}

// fields returns the fields of the struct that the spec has at this place.
func (f Field) fields() map[string]reflect.Type {
	fields, ok := f.known[f.of]
	if !ok {
		fields = fieldsOf(f.of)
		f.known[f.of] = fields
	}
	return fields
}

// Asks reports whether the field, or something below it, asks for anything: by its value,
// as Value.Asks has it, or by its presence. A member that the spec does not have asks for
// nothing: docs/stage1-abi.md, section 9.
func (f Field) Asks() bool {
	switch {
	case f.in == nil || f.place().kind == 'n':
		return false
	case f.asks:
		return true
	case !f.IsObject():
		return f.Value.Asks()
	}
	for m := f.Members(); m.Next(); {
		if inner, _, ok := f.Member(&m); ok && inner.Asks() {
			return true
		}
	}
	return false
}

// fieldsOf returns the types of a struct's members by their names in JSON.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	names := map[string]reflect.Type{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			maps.Copy(names, fieldsOf(f.Type))
		} else if f.IsExported() && name != "" {
			names[name] = f.Type
		}
	}
	return names
}
