package stage1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// stage0Fields returns the fields of config.json that stage 0 enforces itself.
func stage0Fields() []string {
	return []string{"/ociVersion", "/annotations", "/linux/cgroupsPath", "/linux/resources", "/hooks/poststop"}
}

// checkSpec returns an error that names the first value of a raw config.json
// that asks for something and is not declared. Texts that are not one JSON
// object are errdefs.ErrInvalidArgument.
func checkSpec(spec []byte, declared *fields, stage1 string) error {
	if !json.Valid(spec) || bytes.TrimLeft(spec, " \t\r\n")[0] != '{' {
		return Invalid("config.json is not a JSON object")
	}
	w := walker{text: spec}
	if !w.undeclared([]*fields{declared}) {
		return nil
	}
	return fmt.Errorf("config.json asks for %s, which stage1 %s does not support: %w", w.pointer(), stage1, errdefs.ErrNotImplemented)
}

// walker reads a JSON text that is known to be valid, value by value, without
// building anything: config.json is read for every container, and most of it is
// declared and skipped. Its methods leave at behind what they have read.
type walker struct {
	text []byte
	at   int
	path []step // to the value at hand
}

// step is a key of an object, raw as in the text, or an index of an array.
type step struct {
	key   []byte
	index int
}

// undeclared reads a value and reports whether it, or something below it, asks for
// what is not declared; the path then leads to it. nodes are the places in the
// declaration that the path matches: two where a * and a name do. The caller has
// made sure that none covers the value.
func (w *walker) undeclared(nodes []*fields) bool {
	if len(nodes) == 0 {
		return w.asks()
	}
	switch w.space() {
	case '{', '[':
		return w.members(func(key []byte) bool {
			below, covered := descend(nodes, key)
			if covered {
				w.skip()
				return false
			}
			return w.undeclared(below)
		})
	}
	return w.asks()
}

// descend returns the nodes that match one step further down.
func descend(nodes []*fields, key []byte) (below []*fields, covered bool) {
	for _, n := range nodes {
		for _, m := range [...]*fields{n.next[string(key)], n.any} {
			if m == nil {
				continue
			}
			if m.covered {
				return nil, true
			}
			below = append(below, m)
		}
	}
	return below, false
}

// asks reads a value and reports whether it asks for anything. What does not is
// null, false, 0, "", [], and an object with nothing else in it.
func (w *walker) asks() bool {
	switch w.space() {
	case '{':
		path := len(w.path)
		found := w.members(func([]byte) bool { return w.asks() })
		w.path = w.path[:path] // the outermost undeclared value is the one to name
		return found
	case '[':
		w.at++
		empty := w.space() == ']'
		w.at--
		w.skip()
		return !empty
	}
	start := w.at
	w.skip()
	switch v := w.text[start:w.at]; v[0] {
	case 'n', 'f':
		return false
	case 't':
		return true
	case '"':
		return len(v) > 2
	default:
		mantissa, _, _ := strings.Cut(strings.ToLower(string(v)), "e")
		return strings.ContainsAny(mantissa, "123456789")
	}
}

// members reads an object or array, whose opening is next. visit has to read the
// member's value. members ends early, with true, when visit returns true; the
// path then still leads to that member.
func (w *walker) members(visit func(key []byte) bool) bool {
	object := w.text[w.at] == '{'
	w.at++
	depth := len(w.path)
	var number [8]byte
	for index := 0; ; index++ {
		c := w.space()
		if c == ',' {
			w.at++
			c = w.space()
		}
		if c == '}' || c == ']' {
			w.at++
			w.path = w.path[:depth]
			return false
		}
		s := step{index: index}
		key := strconv.AppendInt(number[:0], int64(index), 10)
		if object {
			s.key = w.key()
			key = s.key
		}
		w.path = append(w.path[:depth], s)
		if visit(key) {
			return true
		}
	}
}

// key reads a member's name and the colon behind it.
func (w *walker) key() []byte {
	start := w.at
	w.skip()
	raw := w.text[start:w.at]
	w.space()
	w.at++ // the colon
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	var s string
	_ = json.Unmarshal(raw, &s) // valid, as all of the text
	return []byte(s)
}

// space skips white space and returns what is next.
func (w *walker) space() byte {
	for {
		switch c := w.text[w.at]; c {
		case ' ', '\t', '\r', '\n':
			w.at++
		default:
			return c
		}
	}
}

// skip reads a value, with all that is in it.
func (w *walker) skip() {
	w.space()
	for depth := 0; ; {
		switch c := w.text[w.at]; c {
		case '{', '[':
			depth++
			w.at++
		case '}', ']':
			depth--
			w.at++
		case '"':
			w.string()
		case ',', ':', ' ', '\t', '\r', '\n':
			w.at++
		default:
			w.word()
		}
		if depth == 0 {
			return
		}
	}
}

// string reads a string.
func (w *walker) string() {
	for w.at++; w.text[w.at] != '"'; w.at++ {
		if w.text[w.at] == '\\' {
			w.at++
		}
	}
	w.at++
}

// word reads a number, true, false or null.
func (w *walker) word() {
	for w.at < len(w.text) && strings.IndexByte(",:]} \t\r\n", w.text[w.at]) < 0 {
		w.at++
	}
}

// pointer returns the path as a JSON pointer.
func (w *walker) pointer() string {
	var b strings.Builder
	for _, s := range w.path {
		b.WriteByte('/')
		if s.key == nil {
			b.WriteString(strconv.Itoa(s.index))
			continue
		}
		key := strings.ReplaceAll(strings.ReplaceAll(string(s.key), "~", "~0"), "/", "~1")
		b.WriteString(key)
	}
	return b.String()
}
