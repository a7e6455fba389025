package wire

import (
	"fmt"
	"math"
	"reflect"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// usualSize is the size of the memory for a message, in which most messages fit.
const usualSize = 128

// Encode returns the text of a message, which is a pointer to a struct. Fields with their zero
// value are not written. Its error says that a string is not UTF-8.
func Encode(message any) ([]byte, error) {
	text, err := appendMessage(make([]byte, 0, usualSize), reflect.ValueOf(message).Elem())
	if err != nil {
		return nil, fmt.Errorf("%T: %w", message, err)
	}
	return text, nil
}

func appendMessage(text []byte, message reflect.Value) (_ []byte, err error) {
	for i := range message.NumField() {
		f, ok := fieldAt(message.Type(), i)
		if !ok {
			continue
		}
		if text, err = f.append(text, message.Field(i)); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// append writes all values of a field.
func (f field) append(text []byte, from reflect.Value) (_ []byte, err error) {
	switch t := from.Type(); {
	case t.Kind() == reflect.Map:
		return f.appendMap(text, from)
	case !isRepeated(t):
		if isDefault(from) {
			return text, nil
		}
		return appendValue(text, f.number, from)
	case kindOf(t.Elem()) != protowire.BytesType:
		return f.appendPacked(text, from), nil
	}
	for i := range from.Len() {
		if text, err = appendValue(text, f.number, from.Index(i)); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// isDefault reports whether a value is not written. Of the two zeros of floating point, reflect takes
// both for zero, and protobuf writes the negative one.
func isDefault(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Float64:
		return math.Float64bits(v.Float()) == 0
	case reflect.Slice:
		return v.Len() == 0
	}
	return v.IsZero()
}

func (f field) appendMap(text []byte, from reflect.Value) (_ []byte, err error) {
	for entries := from.MapRange(); entries.Next(); {
		text = protowire.AppendTag(text, f.number, protowire.BytesType)
		start := len(text)
		if text, err = appendValue(text, 1, entries.Key()); err == nil {
			text, err = appendValue(text, 2, entries.Value())
		}
		if err != nil {
			return nil, err
		}
		text = insertLength(text, start)
	}
	return text, nil
}

func (f field) appendPacked(text []byte, from reflect.Value) []byte {
	if from.Len() == 0 {
		return text
	}
	text = protowire.AppendTag(text, f.number, protowire.BytesType)
	start := len(text)
	for i := range from.Len() {
		text = appendNumber(text, from.Index(i))
	}
	return insertLength(text, start)
}

// appendValue writes a value with its number.
func appendValue(text []byte, number protowire.Number, v reflect.Value) (_ []byte, err error) {
	text = protowire.AppendTag(text, number, kindOf(v.Type()))
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			return nil, errUTF8
		}
		return protowire.AppendString(text, v.String()), nil
	case reflect.Slice:
		return protowire.AppendBytes(text, v.Bytes()), nil
	case reflect.Pointer:
		if v.IsNil() {
			return protowire.AppendBytes(text, nil), nil
		}
		return appendBelow(text, v.Elem())
	case reflect.Struct:
		return appendBelow(text, v)
	default:
		return appendNumber(text, v), nil
	}
}

// appendBelow writes a message below another one.
func appendBelow(text []byte, message reflect.Value) (_ []byte, err error) {
	start := len(text)
	if text, err = appendMessage(text, message); err != nil {
		return nil, err
	}
	return insertLength(text, start), nil
}

func appendNumber(text []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Bool:
		return protowire.AppendVarint(text, protowire.EncodeBool(v.Bool()))
	case reflect.Int32, reflect.Int64:
		return protowire.AppendVarint(text, uint64(v.Int()))
	case reflect.Float64:
		return protowire.AppendFixed64(text, math.Float64bits(v.Float()))
	default:
		return protowire.AppendVarint(text, v.Uint())
	}
}

// insertLength writes the length of what follows start before it.
func insertLength(text []byte, start int) []byte {
	length := len(text) - start
	size := protowire.SizeVarint(uint64(length))
	text = append(text, make([]byte, size)...)
	copy(text[start+size:], text[start:start+length])
	protowire.AppendVarint(text[start:start], uint64(length))
	return text
}
