package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// Names of keys. A list is in the order of docs/config.md.
const (
	keyDefault = "default"
	keyStage1  = "stage1"
	keyFields  = "fields"

	keyPath         = "path"
	keyDigest       = "digest"
	keyPodsMayAsk   = "pods_may_ask"
	keyPodsMayLeave = "pods_may_leave"
	keyAccept       = "accept"
)

func topKeys() []string { return []string{keyDefault, keyStage1, keyFields} }

func stage1Keys() []string {
	return []string{keyPath, keyDigest, keyPodsMayAsk, keyPodsMayLeave, keyAccept}
}

// reader reads files into one configuration and collects what is wrong in them.
type reader struct {
	config   *Config
	problems Problems

	file   string
	parser unstable.Parser
}

// position is a place in a file.
type position struct {
	file         string
	line, column int
}

// placed is an entry of a list with its place.
type placed struct {
	text string
	at   position
}

// read adds one file. Whether it is TOML at all, and sets nothing twice, is left
// to the decoder; what it means is read from the syntax tree, which alone knows
// the places.
func (r *reader) read(file string, text []byte) {
	r.file = file
	var any map[string]any
	if err := toml.Unmarshal(text, &any); err != nil {
		at := position{file: file}
		var d *toml.DecodeError
		if errors.As(err, &d) {
			at.line, at.column = d.Position()
		}
		r.problem(at, "not TOML: %s", strings.TrimPrefix(err.Error(), "toml: "))
		return
	}
	r.parser.Reset(text)
	var table []string
	for r.parser.NextExpression() {
		e := r.parser.Expression()
		switch e.Kind {
		case unstable.Table:
			table = keys(e)
			r.table(table, r.at(e))
		case unstable.ArrayTable:
			table = keys(e)
			r.problem(r.at(e), "%s is a table, and not a list of tables: write [%s]", dotted(table), dotted(table))
		case unstable.KeyValue:
			r.setting(table, e)
		}
	}
}

// setting reads a key with its value. An inline table is as many of them as it has
// members.
func (r *reader) setting(table []string, e *unstable.Node) {
	path := append(slices.Clone(table), keys(e)...)
	value := e.Value()
	if value.Kind != unstable.InlineTable {
		r.value(path, r.at(e), value)
		return
	}
	r.table(path, r.at(e))
	for members := value.Children(); members.Next(); {
		r.setting(path, members.Node())
	}
}

// table meets the head of a table.
func (r *reader) table(path []string, at position) {
	if !r.known(path, at) {
		return
	}
	switch {
	case len(path) == 1 && path[0] == keyDefault, path[0] == keyFields && len(path) == 2, path[0] == keyStage1 && len(path) == 3:
		r.problem(at, "%s is not a table", dotted(path))
	case path[0] == keyStage1 && len(path) == 2:
		r.remember(path, at)
		r.edit(path[1], func(*Stage1) {})
	}
}

// remember keeps the place where a key was set last.
func (r *reader) remember(path []string, at position) {
	if r.config.places == nil {
		r.config.places = map[string]position{}
	}
	r.config.places[dotted(path)] = at
}

// value meets a key that has a value.
func (r *reader) value(path []string, at position, v *unstable.Node) {
	if !r.known(path, at) {
		return
	}
	r.remember(path, at)
	switch {
	case path[0] == keyDefault:
		if name, ok := r.text(path, at, v); ok && r.isName(name, at) {
			r.config.Default = name
		}
	case path[0] == keyFields && len(path) == 2:
		r.set(path, at, v)
	case path[0] == keyStage1 && len(path) == 3:
		r.ofStage1(path, at, v)
	default:
		r.problem(at, "%s has to be a table", dotted(path))
	}
}

// known tells whether a key may be there, and says so if not.
func (r *reader) known(path []string, at position) bool {
	valid := topKeys()
	word := path[0]
	depth := 1
	if slices.Contains(valid, word) {
		depth = map[string]int{keyDefault: 1, keyFields: 2, keyStage1: 3}[word]
		if word == keyStage1 && len(path) >= 2 && !r.isName(path[1], at) {
			return false
		}
		if word == keyStage1 && len(path) >= 3 {
			valid, word = stage1Keys(), path[2]
		}
	}
	switch {
	case !slices.Contains(valid, word):
		r.problem(at, "unknown key %s: the nearest valid one is %s (valid: %s)", dotted(path), nearest(word, valid), strings.Join(valid, ", "))
	case len(path) > depth:
		r.problem(at, "unknown key %s: %s has no keys of its own", dotted(path), dotted(path[:depth]))
	default:
		return true
	}
	return false
}

func (r *reader) isName(name string, at position) bool {
	if IsName(name) {
		return true
	}
	r.problem(at, "stage1 %q: a name has small letters, digits and hyphens only", name)
	return false
}

// ofStage1 reads a key of a stage1's table.
func (r *reader) ofStage1(path []string, at position, v *unstable.Node) {
	name := path[1]
	switch path[2] {
	case keyPath:
		if text, ok := r.text(path, at, v); ok {
			if !filepath.IsAbs(text) {
				r.problem(at, "%s: %q is not an absolute path", dotted(path), text)
			}
			r.edit(name, func(s *Stage1) { s.Path = filepath.Clean(text) })
		}
	case keyDigest:
		if text, ok := r.text(path, at, v); ok {
			if !isDigest(text) {
				r.problem(at, "%s: %.40q is not \"sha512-\" and 128 digits of 0-9 and a-f; rktctl stage1 list shows those of the images here", dotted(path), text)
			}
			r.edit(name, func(s *Stage1) { s.Digest = text })
		}
	case keyPodsMayAsk:
		if b, ok := r.boolean(path, at, v); ok {
			r.edit(name, func(s *Stage1) { s.PodsMayAsk = b })
		}
	case keyPodsMayLeave:
		if b, ok := r.boolean(path, at, v); ok {
			r.edit(name, func(s *Stage1) { s.PodsMustStay = !b })
		}
	case keyAccept:
		if list, ok := r.list(path, at, v); ok {
			r.edit(name, func(s *Stage1) { s.accept = list })
		}
	}
}

// set reads a named set of fields.
func (r *reader) set(path []string, at position, v *unstable.Node) {
	name := path[1]
	if !IsName(name) {
		r.problem(at, "set of fields %q: a name has small letters, digits and hyphens only", name)
		return
	}
	if builtinSet(name) != nil {
		r.problem(at, "the set of fields %s comes with the shim and cannot be changed: take another name", name)
		return
	}
	list, ok := r.list(path, at, v)
	if !ok {
		return
	}
	pointers := make([]string, 0, len(list))
	for _, e := range list {
		if !isPointer(e.text) {
			r.problem(e.at, "%s: %q is not a JSON pointer into config.json, such as \"/process/rlimits\"", dotted(path), e.text)
		}
		pointers = append(pointers, e.text)
	}
	if r.config.Sets == nil {
		r.config.Sets = map[string][]string{}
	}
	r.config.Sets[name] = pointers
}

// edit changes a stage1, and makes it first.
func (r *reader) edit(name string, change func(*Stage1)) {
	if r.config.Stage1s == nil {
		r.config.Stage1s = map[string]Stage1{}
	}
	s := r.config.Stage1s[name]
	change(&s)
	r.config.Stage1s[name] = s
}

func (r *reader) text(path []string, at position, v *unstable.Node) (string, bool) {
	if v.Kind != unstable.String {
		r.problem(at, "%s has to be a text in quotes", dotted(path))
		return "", false
	}
	return string(v.Data), true
}

func (r *reader) boolean(path []string, at position, v *unstable.Node) (value, ok bool) {
	if v.Kind != unstable.Bool {
		r.problem(at, "%s has to be true or false", dotted(path))
		return false, false
	}
	return string(v.Data) == "true", true
}

func (r *reader) list(path []string, at position, v *unstable.Node) ([]placed, bool) {
	if v.Kind != unstable.Array {
		r.problem(at, "%s has to be a list of texts in quotes", dotted(path))
		return nil, false
	}
	list := []placed{}
	for items := v.Children(); items.Next(); {
		item := items.Node()
		if item.Kind == unstable.Comment {
			continue
		}
		text, ok := r.text(path, at, item)
		if !ok {
			return nil, false
		}
		list = append(list, placed{text, r.place(item.Raw)})
	}
	return list, true
}

// end resolves the sets that stage1s accept, once all files are read.
func (r *reader) end() (*Config, error) {
	for name, s := range r.config.Stage1s {
		for _, e := range s.accept {
			switch fields, ok := r.config.set(e.text); {
			case ok:
				s.Accept = append(s.Accept, fields...)
			case isPointer(e.text):
				s.Accept = append(s.Accept, e.text)
			default:
				r.problem(e.at, "stage1.%s.accept: %q is neither a JSON pointer into config.json, such as \"/process/rlimits\", nor a set of fields: the nearest set is %s",
					name, e.text, nearest(e.text, r.config.SetNames()))
			}
		}
		s.accept = nil
		r.config.Stage1s[name] = s
	}
	if len(r.problems) == 0 {
		return r.config, nil
	}
	slices.SortStableFunc(r.problems, Problem.Compare)
	return nil, r.problems
}

func (r *reader) problem(at position, format string, args ...any) {
	r.problems = append(r.problems, Problem{File: at.file, Line: at.line, Column: at.column, Text: fmt.Sprintf(format, args...)})
}

// at returns the place of an expression's key.
func (r *reader) at(e *unstable.Node) position {
	k := e.Key()
	k.Next()
	return r.place(k.Node().Raw)
}

func (r *reader) place(raw unstable.Range) position {
	start := r.parser.Shape(raw).Start
	return position{file: r.file, line: start.Line, column: start.Column}
}

// keys returns the words of an expression's key.
func keys(e *unstable.Node) []string {
	var words []string
	for k := e.Key(); k.Next(); {
		words = append(words, string(k.Node().Data))
	}
	return words
}

// dotted is a key as a file has it.
func dotted(path []string) string {
	words := make([]string, len(path))
	for i, w := range path {
		words[i] = w
		if w == "" || strings.ContainsFunc(w, func(c rune) bool {
			return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
		}) {
			words[i] = fmt.Sprintf("%q", w)
		}
	}
	return strings.Join(words, ".")
}

// IsName tells whether a stage1 or a set of fields can have this name.
func IsName(name string) bool {
	notPart := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' }
	return name != "" && !strings.ContainsFunc(name, notPart)
}

// isPointer tells whether a text is a JSON pointer to something in an object.
func isPointer(text string) bool {
	return len(text) > 1 && text[0] == '/' && !strings.HasSuffix(text, "/")
}

func isDigest(text string) bool {
	digits, ok := strings.CutPrefix(text, "sha512-")
	if !ok || len(digits) != 128 || strings.ToLower(digits) != digits {
		return false
	}
	_, err := hex.DecodeString(digits)
	return err == nil
}
