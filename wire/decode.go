package wire

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

var (
	errUTF8   = errors.New("a string is not valid UTF-8")
	errNumber = errors.New("the number of a field is too large")
)

// Decode reads a message into a struct, and leaves fields alone that the text does not have.
// Like protobuf, it skips unknown fields and values of another type than the field's, merges a
// message that occurs twice, and refuses strings that are not UTF-8.
func Decode(text []byte, message any) error {
	if err := decode(text, reflect.ValueOf(message).Elem()); err != nil {
		return fmt.Errorf("%T: %w", message, err)
	}
	return nil
}

func decode(text []byte, message reflect.Value) error {
	for len(text) > 0 {
		number, v, rest, err := next(text)
		if err != nil {
			return err
		}
		text = rest
		f, ok := fieldOf(message.Type(), number)
		if !ok {
			continue
		}
		if err := f.read(v, message.Field(f.index)); err != nil {
			return err
		}
	}
	return nil
}

// next returns the first value of a message's text, its number, and the text after it.
func next(text []byte) (number protowire.Number, v value, rest []byte, err error) {
	number, kind, n := protowire.ConsumeTag(text)
	if n < 0 {
		return 0, v, nil, protowire.ParseError(n)
	}
	if number > protowire.MaxValidNumber {
		return 0, v, nil, errNumber
	}
	text = text[n:]
	if n = protowire.ConsumeFieldValue(number, kind, text); n < 0 {
		return 0, v, nil, protowire.ParseError(n)
	}
	return number, value{kind, text[:n]}, text[n:], nil
}

// field is a field of a message.
type field struct {
	index  int // in the struct
	number protowire.Number
}

// fieldAt returns a field of a struct. ok is false for what is no field of the message.
func fieldAt(t reflect.Type, index int) (f field, ok bool) {
	_, rest, ok := strings.Cut(t.Field(index).Tag.Get("protobuf"), ",")
	if !ok {
		return f, false
	}
	word, _, _ := strings.Cut(rest, ",")
	number, err := strconv.Atoi(word)
	return field{index, protowire.Number(number)}, err == nil
}

func fieldOf(t reflect.Type, number protowire.Number) (field, bool) {
	for i := range t.NumField() {
		if f, ok := fieldAt(t, i); ok && f.number == number {
			return f, true
		}
	}
	return field{}, false
}

// value is a value as it arrived.
type value struct {
	kind protowire.Type
	text []byte
}

// read sets a field, or appends to it.
func (f field) read(v value, to reflect.Value) error {
	switch t := to.Type(); {
	case t.Kind() == reflect.Map:
		return readEntry(v, to)
	case !isRepeated(t):
		_, err := v.read(to)
		return err
	case v.kind == protowire.BytesType && kindOf(t.Elem()) != protowire.BytesType:
		return readPacked(v, to)
	default:
		e := reflect.New(t.Elem()).Elem()
		ok, err := v.read(e)
		if ok && err == nil {
			to.Set(reflect.Append(to, e))
		}
		return err
	}
}

// read sets a single value. ok is false if v is of another type.
func (v value) read(to reflect.Value) (ok bool, err error) {
	if v.kind != kindOf(to.Type()) {
		return false, nil
	}
	switch v.kind {
	case protowire.VarintType:
		n, _ := protowire.ConsumeVarint(v.text)
		setNumber(to, n)
	case protowire.Fixed64Type:
		n, _ := protowire.ConsumeFixed64(v.text)
		to.SetFloat(math.Float64frombits(n))
	default:
		text, _ := protowire.ConsumeBytes(v.text)
		return true, setText(to, text)
	}
	return true, nil
}

func setNumber(to reflect.Value, n uint64) {
	switch to.Kind() {
	case reflect.Bool:
		to.SetBool(n != 0)
	case reflect.Int32:
		to.SetInt(int64(int32(n)))
	case reflect.Int64:
		to.SetInt(int64(n))
	case reflect.Uint32:
		to.SetUint(uint64(uint32(n)))
	default:
		to.SetUint(n)
	}
}

func setText(to reflect.Value, text []byte) error {
	switch to.Kind() {
	case reflect.String:
		if !utf8.Valid(text) {
			return errUTF8
		}
		to.SetString(string(text))
	case reflect.Pointer:
		if to.IsNil() {
			to.Set(reflect.New(to.Type().Elem()))
		}
		return decode(text, to.Elem())
	case reflect.Struct:
		return decode(text, to)
	default:
		to.SetBytes(append([]byte(nil), text...))
	}
	return nil
}

// readPacked appends numbers that arrived as one value.
func readPacked(v value, to reflect.Value) error {
	text, _ := protowire.ConsumeBytes(v.text)
	for kind := kindOf(to.Type().Elem()); len(text) > 0; {
		n := protowire.ConsumeFieldValue(1, kind, text)
		if n < 0 {
			return protowire.ParseError(n)
		}
		e := reflect.New(to.Type().Elem()).Elem()
		if _, err := (value{kind, text[:n]}).read(e); err != nil {
			return err
		}
		to.Set(reflect.Append(to, e))
		text = text[n:]
	}
	return nil
}

// readEntry reads an entry of a map, which is a message of a key and a value.
func readEntry(v value, to reflect.Value) error {
	if v.kind != protowire.BytesType {
		return nil
	}
	text, _ := protowire.ConsumeBytes(v.text)
	t := to.Type()
	key, val := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
	if val.Kind() == reflect.Pointer {
		val.Set(reflect.New(t.Elem().Elem()))
	}
	for len(text) > 0 {
		number, member, rest, err := next(text)
		if err != nil {
			return err
		}
		text = rest
		switch number {
		case 1:
			_, err = member.read(key)
		case 2:
			_, err = member.read(val)
		}
		if err != nil {
			return err
		}
	}
	if to.IsNil() {
		to.Set(reflect.MakeMap(t))
	}
	to.SetMapIndex(key, val)
	return nil
}

// isRepeated reports whether fields of a type have any number of values.
func isRepeated(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8
}

// kindOf returns how a value of a type is written.
func kindOf(t reflect.Type) protowire.Type {
	switch t.Kind() {
	case reflect.Bool, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return protowire.VarintType
	case reflect.Float64:
		return protowire.Fixed64Type
	default:
		return protowire.BytesType
	}
}
