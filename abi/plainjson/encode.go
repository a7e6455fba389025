package plainjson

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Encode returns the JSON text of v. It does as json.Marshal does.
func Encode(v any) ([]byte, error) {
	e := encoder{forms: forms{}}
	if e.value(reflect.ValueOf(v)) {
		return e.text, nil
	}
	return json.Marshal(v)
}

// encoder writes a text, value by value. Each method reports whether it knows that
// encoding/json would do the same.
type encoder struct {
	text  []byte
	forms forms
}

func (e *encoder) value(v reflect.Value) bool {
	if !v.IsValid() {
		return e.word("null")
	}
	f := e.forms.of(v.Type())
	if f.rare {
		return e.rare(v)
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return e.word("null")
		}
		return e.value(v.Elem())
	case reflect.Struct:
		return e.structure(v, f)
	case reflect.Map:
		return e.mapping(v)
	case reflect.Slice:
		if v.IsNil() {
			return e.word("null")
		}
		return e.list(v)
	case reflect.Array:
		return e.list(v)
	case reflect.String:
		return e.string(v.String())
	case reflect.Bool:
		return e.word(strconv.FormatBool(v.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		e.text = strconv.AppendInt(e.text, v.Int(), 10)
		return true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		e.text = strconv.AppendUint(e.text, v.Uint(), 10)
		return true
	}
	return e.rare(v) // floating point
}

// rare lets encoding/json write a value.
func (e *encoder) rare(v reflect.Value) bool {
	if v.CanAddr() {
		v = v.Addr() // methods of pointers are called for values that can be addressed
	}
	if !v.CanInterface() {
		return false
	}
	text, err := json.Marshal(v.Interface())
	e.text = append(e.text, text...)
	return err == nil
}

func (e *encoder) word(w string) bool {
	e.text = append(e.text, w...)
	return true
}

func (e *encoder) structure(v reflect.Value, f *form) bool {
	next := byte('{')
	for _, field := range f.fields {
		inner := v.Field(field.index)
		if field.omitEmpty && isEmpty(inner) || field.omitZero && isZero(inner) {
			continue
		}
		e.text = append(e.text, next)
		if next = ','; !e.string(field.name) {
			return false
		}
		if e.text = append(e.text, ':'); !e.value(inner) {
			return false
		}
	}
	if next == '{' {
		return e.word("{}")
	}
	return e.word("}")
}

func isZero(v reflect.Value) bool {
	if t, ok := reflect.TypeAssert[time.Time](v); ok {
		return t.IsZero()
	}
	return v.IsZero()
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

func (e *encoder) mapping(v reflect.Value) bool {
	if v.IsNil() {
		return e.word("null")
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	e.text = append(e.text, '{')
	for n, key := range keys {
		if n > 0 {
			e.text = append(e.text, ',')
		}
		if !e.string(key.String()) {
			return false
		}
		if e.text = append(e.text, ':'); !e.value(v.MapIndex(key)) {
			return false
		}
	}
	return e.word("}")
}

func (e *encoder) list(v reflect.Value) bool {
	e.text = append(e.text, '[')
	for n := range v.Len() {
		if n > 0 {
			e.text = append(e.text, ',')
		}
		if !e.value(v.Index(n)) {
			return false
		}
	}
	return e.word("]")
}

// string writes a string. encoding/json writes those with characters that it may escape.
func (e *encoder) string(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || strings.IndexByte(`"\<>&`, c) >= 0 {
			text, err := json.Marshal(s)
			e.text = append(e.text, text...)
			return err == nil
		}
	}
	e.text = append(append(append(e.text, '"'), s...), '"')
	return true
}
