package stage1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// stage0Fields are the fields of config.json that stage 0 enforces itself.
var stage0Fields = []string{"/ociVersion", "/annotations", "/linux/cgroupsPath", "/linux/resources", "/hooks/poststop"}

// CheckSpec returns an error that names the first field of a raw config.json
// that asks for something and that neither the image nor stage 0 declares. See
// docs/stage1-abi.md, section 9.
func (i *Image) CheckSpec(spec []byte) error {
	w := walker{declared: i.features.Fields}
	d := json.NewDecoder(bytes.NewReader(spec))
	d.UseNumber()
	if err := w.value(d); err != nil {
		return fmt.Errorf("config.json: %v: %w", err, errdefs.ErrInvalidArgument)
	}
	if w.found == "" {
		return nil
	}
	return fmt.Errorf("config.json asks for %s, which stage1 %s does not enforce: %w", w.found, i.manifest.name, errdefs.ErrNotImplemented)
}

// walker visits the values of a JSON text and stops looking at the first that
// asks for something nobody declared.
type walker struct {
	declared []string
	path     []string // of the value at hand, unescaped
	found    string
}

// value reads one value.
func (w *walker) value(d *json.Decoder) error {
	if len(w.path) > 0 && w.covered() {
		var skip json.RawMessage
		return d.Decode(&skip)
	}
	t, err := d.Token()
	if err != nil {
		return err
	}
	switch t {
	case json.Delim('{'):
		return w.members(d, func() (string, error) {
			key, err := d.Token()
			if err != nil {
				return "", err
			}
			return key.(string), nil
		})
	case json.Delim('['):
		n := -1
		return w.members(d, func() (string, error) {
			n++
			return strconv.Itoa(n), nil
		})
	}
	if w.found == "" && !empty(t) {
		w.found = pointer(w.path)
	}
	return nil
}

// members reads the rest of an object or array, up to its closing delimiter.
func (w *walker) members(d *json.Decoder, next func() (string, error)) error {
	for d.More() {
		key, err := next()
		if err != nil {
			return err
		}
		w.path = append(w.path, key)
		if err := w.value(d); err != nil {
			return err
		}
		w.path = w.path[:len(w.path)-1]
	}
	_, err := d.Token()
	return err
}

// covered tells whether somebody honours the value at hand and all below it.
func (w *walker) covered() bool {
	for _, list := range [][]string{stage0Fields, w.declared} {
		for _, p := range list {
			if matches(p, w.path) {
				return true
			}
		}
	}
	return false
}

// matches compares a declared pointer with a path of the same length.
func matches(declared string, path []string) bool {
	rest := declared
	for _, key := range path {
		var ok bool
		if rest, ok = strings.CutPrefix(rest, "/"); !ok {
			return false
		}
		word, _, _ := strings.Cut(rest, "/")
		rest = rest[len(word):]
		if word != "*" && word != key && unescape.Replace(word) != key {
			return false
		}
	}
	return rest == ""
}

var (
	unescape = strings.NewReplacer("~1", "/", "~0", "~")
	escape   = strings.NewReplacer("~", "~0", "/", "~1")
)

func pointer(path []string) string {
	var b strings.Builder
	for _, key := range path {
		b.WriteByte('/')
		b.WriteString(escape.Replace(key))
	}
	return b.String()
}

// empty tells whether a value asks for nothing.
func empty(t json.Token) bool {
	switch v := t.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case json.Number:
		f, err := v.Float64()
		return err == nil && f == 0
	}
	return false
}
