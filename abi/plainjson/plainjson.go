// Package plainjson reads and writes JSON documents as encoding/json does, but keeps no
// tables. For each type that encoding/json meets it builds an encoder of every type below it,
// and keeps them: 300 KB for the records and specs of one pod, in a server that every pod has.
// Package plainjson looks at the types each time.
//
// It leaves all that is not plain to encoding/json: types with methods of their own, embedded
// structs, members that occur twice, and every document with an error. So results and errors
// are those of encoding/json.
package plainjson

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// form says how the values of a type are read and written.
type form struct {
	rare   bool // by encoding/json
	fields []field
}

// field is a field of a struct.
type field struct {
	name      string
	index     int
	omitEmpty bool
	omitZero  bool
}

// forms has the forms of one document's types. It is garbage when the document has been read.
type forms map[reflect.Type]*form

func (f forms) of(t reflect.Type) *form {
	known, ok := f[t]
	if !ok {
		known = formOf(t)
		f[t] = known
	}
	return known
}

// methods are the interfaces of types that encoding/json does not read or write by their
// structure.
var methods = []reflect.Type{
	reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler](),
	reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
}

func hasMethods(t reflect.Type) bool {
	if t.PkgPath() == "" || t.Kind() == reflect.Interface {
		return false // types without a name have no methods
	}
	for _, m := range methods {
		if reflect.PointerTo(t).Implements(m) {
			return true
		}
	}
	return false
}

func formOf(t reflect.Type) *form {
	if t == reflect.TypeFor[json.Number]() || hasMethods(t) {
		return &form{rare: true}
	}
	switch t.Kind() {
	case reflect.Struct:
		return structForm(t)
	case reflect.Slice:
		return &form{rare: t.Elem().Kind() == reflect.Uint8} // base64
	case reflect.Map:
		return &form{rare: t.Key().Kind() != reflect.String || hasMethods(t.Key())}
	case reflect.Array, reflect.Pointer, reflect.String, reflect.Bool, reflect.Interface,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64:
		return &form{}
	}
	return &form{rare: true}
}

// maxFields is the number of bits of decoder.object's set of fields.
const maxFields = 64

// structForm returns the form of a struct. A struct with embedded structs or with options that
// few structs have is rare.
func structForm(t reflect.Type) *form {
	f := &form{fields: make([]field, 0, t.NumField())}
	for i := range t.NumField() {
		s := t.Field(i)
		tag := s.Tag.Get("json")
		if tag == "-" || !s.IsExported() && !s.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		omitEmpty, omitZero := options == "omitempty", options == "omitzero" && plainZero(s.Type)
		if s.Anonymous || options != "" && !omitEmpty && !omitZero || strings.ContainsAny(name, `\'"<>&`) {
			return &form{rare: true}
		}
		if name == "" {
			name = s.Name
		}
		for _, other := range f.fields {
			if other.name == name {
				return &form{rare: true}
			}
		}
		f.fields = append(f.fields, field{name, i, omitEmpty, omitZero})
	}
	f.rare = len(f.fields) > maxFields
	return f
}

// zeroer is what encoding/json asks whether a value is omitted by omitzero.
var zeroer = reflect.TypeFor[interface{ IsZero() bool }]()

// plainZero reports whether a value of a type is omitted by omitzero if reflect finds it zero, or
// is a time.
func plainZero(t reflect.Type) bool {
	return t == reflect.TypeFor[time.Time]() || t.Kind() != reflect.Interface && !reflect.PointerTo(t).Implements(zeroer) && !t.Implements(zeroer)
}
