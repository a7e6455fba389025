package spec

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Value is a value in a text that was read. The zero Value stands for a missing value: it
// has no members and asks for nothing.
type Value struct {
	in *index
	at int32
}

// index has the places of all values of a valid text, in the order of the text: a value
// comes before the values in it, and each member of an object comes after its key.
type index struct {
	text   []byte
	places []place
}

type place struct {
	start, end int32 // in the text
	next       int32 // index of the first place after the value and everything in it
	kind       byte  // the first byte of the value
}

// Raw returns the value's text.
func (v Value) Raw() []byte {
	if v.in == nil {
		return nil
	}
	p := v.place()
	return v.in.text[p.start:p.end]
}

func (v Value) place() place { return v.in.places[v.at] }

// IsObject reports whether the value is an object.
func (v Value) IsObject() bool { return v.in != nil && v.place().kind == '{' }

// HasMembers reports whether the value is an object or array, which may be empty.
func (v Value) HasMembers() bool { return v.IsObject() || v.in != nil && v.place().kind == '[' }

// Members returns a cursor before the first member of an object, or the first element of an
// array. For other values the cursor is empty:
//
//	for m := v.Members(); m.Next(); {
//		use(m.Name(), m.Value)
//	}
func (v Value) Members() Members {
	if !v.HasMembers() {
		return Members{}
	}
	p := v.place()
	return Members{Value: v, object: p.kind == '{', n: -1, next: v.at + 1, end: p.next}
}

// Members is a cursor. An object can have several members with the same name.
type Members struct {
	Value     // the current member
	object    bool
	n         int   // index of the current member
	next, end int32 // indexes of places
}

// Next goes to the next member, if there is one.
func (m *Members) Next() bool {
	if m.next >= m.end {
		return false
	}
	m.n++
	m.at = m.next
	if m.object {
		m.at++ // after its key
	}
	m.next = m.place().next
	return true
}

// Name returns the name of the current member, or for an element its index as in a JSON
// pointer.
func (m *Members) Name() []byte {
	if !m.object {
		return strconv.AppendInt(nil, int64(m.n), 10)
	}
	raw := m.key()
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	var s string
	_ = json.Unmarshal(raw, &s) // the whole text is valid JSON
	return []byte(s)
}

// key returns the key of the current member as it is written.
func (m *Members) key() []byte { return Value{m.in, m.at - 1}.Raw() }

// Asks reports whether the value asks for something, apart from its presence. null, false,
// 0, "", [] and an object whose members all ask for nothing do not.
func (v Value) Asks() bool {
	if v.in == nil {
		return false
	}
	p := v.place()
	switch p.kind {
	case '{':
		for m := v.Members(); m.Next(); {
			if m.Asks() {
				return true
			}
		}
		return false
	case '[':
		return p.next > v.at+1
	case 'n', 'f':
		return false
	case 't':
		return true
	case '"':
		return p.end-p.start > 2
	}
	mantissa, _, _ := strings.Cut(strings.ToLower(string(v.Raw())), "e")
	return strings.ContainsAny(mantissa, "123456789")
}

// Change is a change of one member of an object. To gets the last member of that name, or
// the zero Value, and returns the member's new text. nil removes the member.
type Change struct {
	Name string
	To   func(Value) []byte
}

// With returns the text of an object with some members changed. The other members stay as
// they are. A value that is no object counts as an empty object.
func (v Value) With(changes ...Change) []byte {
	b := []byte{'{'}
	add := func(key, text []byte) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, key...), ':'), text...)
	}
	old := make([]Value, len(changes))
	if v.IsObject() {
		for m := v.Members(); m.Next(); {
			name := string(m.Name())
			if i := slices.IndexFunc(changes, func(c Change) bool { return c.Name == name }); i >= 0 {
				old[i] = m.Value
				continue
			}
			add(m.key(), m.Raw())
		}
	}
	for i, c := range changes {
		if text := c.To(old[i]); text != nil {
			add(strconv.AppendQuote(nil, c.Name), text)
		}
	}
	return append(b, '}')
}

// newIndex returns the root of a valid text.
func newIndex(text []byte) Value {
	x := indexer{text: text, places: make([]place, 0, len(text)/16+1)}
	x.value()
	return Value{in: &index{text: text, places: x.places}}
}

// indexer reads a valid text, value by value. Each method leaves at after the text that it
// has read.
type indexer struct {
	text   []byte
	at     int
	places []place
}

// value reads a value, with all that is in it.
func (x *indexer) value() {
	kind, n := x.space(), len(x.places)
	x.places = append(x.places, place{start: int32(x.at), kind: kind})
	switch kind {
	case '{', '[':
		x.members(kind == '{')
	case '"':
		x.string()
	default:
		x.word()
	}
	p := &x.places[n]
	p.end, p.next = int32(x.at), int32(len(x.places))
}

// members reads an object or array.
func (x *indexer) members(named bool) {
	x.at++
	for {
		c := x.space()
		if c == ',' {
			x.at++
			c = x.space()
		}
		if c == '}' || c == ']' {
			x.at++
			return
		}
		if named {
			x.value()
			x.space()
			x.at++ // the colon
		}
		x.value()
	}
}

// space skips white space and returns the next byte.
func (x *indexer) space() byte {
	for {
		switch c := x.text[x.at]; c {
		case ' ', '\t', '\r', '\n':
			x.at++
		default:
			return c
		}
	}
}

// string reads a string.
func (x *indexer) string() {
	for x.at++; x.text[x.at] != '"'; x.at++ {
		if x.text[x.at] == '\\' {
			x.at++
		}
	}
	x.at++
}

// word reads a number, true, false or null.
func (x *indexer) word() {
	for x.at < len(x.text) && strings.IndexByte(",:]} \t\r\n", x.text[x.at]) < 0 {
		x.at++
	}
}
