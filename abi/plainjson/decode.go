package plainjson

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Decode sets the value that v points to, as json.Unmarshal does. encoding/json reads the
// document if that value is not zero, because it may keep parts of the old value.
func Decode(text []byte, v any) error {
	to := reflect.ValueOf(v)
	if to.Kind() != reflect.Pointer || to.IsNil() || !to.Elem().IsZero() || !json.Valid(text) {
		return json.Unmarshal(text, v)
	}
	d := decoder{text: text, forms: forms{}}
	if d.value(to.Elem()) {
		return nil
	}
	to.Elem().SetZero()
	return json.Unmarshal(text, v)
}

// decoder reads a valid text, value by value. Each method leaves at after the text that it has
// read, and reports whether it knows that encoding/json would do the same.
type decoder struct {
	text  []byte
	at    int
	forms forms
}

// value sets v, which is zero, to the next value.
func (d *decoder) value(v reflect.Value) bool {
	first, f := d.space(), d.forms.of(v.Type())
	if f.rare || v.Kind() == reflect.Interface {
		return json.Unmarshal(d.skip(), v.Addr().Interface()) == nil
	}
	if first == 'n' {
		d.skip()
		return true
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		return d.value(v.Elem())
	}
	switch first {
	case '{':
		return d.object(v, f)
	case '[':
		return d.array(v)
	case '"':
		text, ok := d.string()
		if ok = ok && v.Kind() == reflect.String; ok {
			v.SetString(text)
		}
		return ok
	case 't', 'f':
		d.skip()
		if v.Kind() != reflect.Bool {
			return false
		}
		v.SetBool(first == 't')
		return true
	}
	return number(v, string(d.skip()))
}

// object reads an object.
func (d *decoder) object(v reflect.Value, f *form) bool {
	t := v.Type()
	switch t.Kind() {
	case reflect.Map:
		v.Set(reflect.MakeMap(t))
	case reflect.Struct:
	default:
		return false
	}
	var seen uint64 // bits of f.fields
	d.at++
	for d.more('}') {
		name, ok := d.string()
		d.space()
		d.at++ // the colon
		if !ok {
			return false
		}
		if t.Kind() == reflect.Map {
			inner := reflect.New(t.Elem()).Elem()
			if !d.value(inner) {
				return false
			}
			v.SetMapIndex(reflect.ValueOf(name).Convert(t.Key()), inner)
			continue
		}
		n := find(f.fields, name)
		if n < 0 {
			d.space()
			d.skip()
			continue
		}
		// encoding/json merges members of the same name.
		if seen&(1<<n) != 0 || !d.value(v.Field(f.fields[n].index)) {
			return false
		}
		seen |= 1 << n
	}
	return true
}

// find returns the index of a member's field, or -1.
func find(fields []field, name string) int {
	for n := range fields {
		if fields[n].name == name {
			return n
		}
	}
	for n := range fields {
		if strings.EqualFold(fields[n].name, name) {
			return n
		}
	}
	return -1
}

// array reads an array.
func (d *decoder) array(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice:
		n := d.count()
		v.Set(reflect.MakeSlice(v.Type(), n, n))
	case reflect.Array:
	default:
		return false
	}
	d.at++
	for n := 0; d.more(']'); n++ {
		if n >= v.Len() {
			d.skip()
		} else if !d.value(v.Index(n)) {
			return false
		}
	}
	return true
}

// count returns the number of elements of the next value, an array.
func (d *decoder) count() (n int) {
	ahead := decoder{text: d.text, at: d.at + 1}
	for ; ahead.more(']'); n++ {
		ahead.skip()
	}
	return n
}

// more goes to the next member, or behind the end of an object or array.
func (d *decoder) more(end byte) bool {
	c := d.space()
	if c == ',' {
		d.at++
		c = d.space()
	}
	if c == end {
		d.at++
		return false
	}
	return true
}

// number sets v to a number.
func number(v reflect.Value, text string) bool {
	switch v.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		v.SetInt(n)
		return err == nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, v.Type().Bits())
		v.SetUint(n)
		return err == nil
	case reflect.Float32, reflect.Float64:
		n, err := strconv.ParseFloat(text, v.Type().Bits())
		v.SetFloat(n)
		return err == nil
	}
	return false
}

// string reads a string.
func (d *decoder) string() (string, bool) {
	raw := d.skip()
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner), true
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// space skips white space and returns the next byte.
func (d *decoder) space() byte {
	for {
		switch c := d.text[d.at]; c {
		case ' ', '\t', '\r', '\n':
			d.at++
		default:
			return c
		}
	}
}

// skip passes over the next value, which is not preceded by white space, and returns its text.
func (d *decoder) skip() []byte {
	start, depth := d.at, 0
	for {
		switch d.text[d.at] {
		case '{', '[':
			depth++
			d.at++
		case '}', ']':
			depth--
			d.at++
		case '"':
			for d.at++; d.text[d.at] != '"'; d.at++ {
				if d.text[d.at] == '\\' {
					d.at++
				}
			}
			d.at++
		case ' ', '\t', '\r', '\n', ',', ':':
			d.at++
			continue // within an object or array
		default:
			for d.at < len(d.text) && strings.IndexByte(",:]} \t\r\n", d.text[d.at]) < 0 {
				d.at++
			}
		}
		if depth == 0 {
			return d.text[start:d.at]
		}
	}
}
