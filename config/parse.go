package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/rkt/containerd-shim-rkt-v1/pod/spec/spelling"
)

// reader reads files into one configuration and collects their problems.
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

// pointer is a JSON pointer in a list, with the key of the list.
type pointer struct {
	key string
	placed
}

// placed is an entry of a list with its place.
type placed struct {
	text string
	at   position
}

// read adds one file. The decoder checks that the file is TOML and sets no key
// twice. read takes the values from the syntax tree, because only the tree has
// their places.
func (r *reader) read(file string, text []byte) {
	r.file = file
	var decoded map[string]any
	if err := toml.Unmarshal(text, &decoded); err != nil {
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

// setting reads a key with its value. It reads an inline table member by member.
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

// table reads the head of a table.
func (r *reader) table(path []string, at position) {
	if !r.known(path, at) {
		return
	}
	switch {
	case len(path) == 1 && (path[0] == keyDefault || path[0] == keyRefuseUnknown), (path[0] == keyFields || path[0] == keyACI || path[0] == keyLocal) && len(path) == 2, path[0] == keyStage1 && len(path) == 3:
		r.problem(at, "%s is not a table", dotted(path))
	case path[0] == keyStage1 && len(path) == 2:
		r.remember(path, at)
		r.edit(path[1], func(*Stage1) {})
	}
}

// remember stores the place where a key was set last.
func (r *reader) remember(path []string, at position) {
	if r.config.places == nil {
		r.config.places = map[string]position{}
	}
	r.config.places[dotted(path)] = at
}

// value reads a key that has a value.
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
	case path[0] == keyRefuseUnknown:
		if b, ok := r.boolean(path, at, v); ok {
			r.config.RefuseUnknown = b
		}
	case path[0] == keyFields && len(path) == 2:
		r.set(path, at, v)
	case path[0] == keyStage1 && len(path) == 3:
		r.ofStage1(path, at, v)
	case path[0] == keyACI && len(path) == 2:
		r.ofACIs(path, at, v)
	case path[0] == keyLocal && len(path) == 2:
		r.ofLocal(path, at, v)
	default:
		r.problem(at, "%s has to be a table", dotted(path))
	}
}

// end resolves the sets that stage1s accept. It is called after all files were
// read.
func (r *reader) end() (*Config, error) {
	for name, s := range r.config.Stage1s {
		for _, e := range s.accept {
			switch fields, ok := r.config.set(e.text); {
			case ok:
				s.Accept = append(s.Accept, fields...)
			case isPointer(e.text):
				s.Accept = append(s.Accept, e.text)
				r.config.pointers = append(r.config.pointers, pointer{dotted([]string{keyStage1, name, keyAccept}), e})
			default:
				r.problem(e.at, "stage1.%s.accept: %q is neither a JSON pointer into config.json, such as \"/process/rlimits\", nor a set of fields: the nearest set is %s",
					name, e.text, spelling.Nearest(e.text, r.config.SetNames()))
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

// dotted returns a key as it is written in a file.
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
