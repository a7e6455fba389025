package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// UnknownFields returns a problem for every JSON pointer in a list of accepted fields that
// leads to no field of the runtime spec. Pods do not fail because of one: the spec of a newer
// containerd may have fields that this release does not know.
func (c *Config) UnknownFields() Problems {
	var all Problems
	for _, p := range c.pointers {
		if !isPointer(p.text) {
			continue
		}
		words := strings.Split(p.text[1:], "/")
		if why := lead(reflect.TypeFor[specs.Spec](), nil, words); why != "" {
			all = append(all, Problem{p.at.file, p.at.line, p.at.column, fmt.Sprintf("%s: %q leads to no field of config.json: %s", p.key, p.text, why)})
		}
	}
	slices.SortStableFunc(all, Problem.Compare)
	return all
}

// lead follows a pointer in a type. It returns why the pointer leads to nothing, or an
// empty string.
func lead(t reflect.Type, done, words []string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(words) == 0 {
		return ""
	}
	here, word := "/"+strings.Join(done, "/"), words[0]
	next := append(slices.Clone(done), word)
	switch t.Kind() {
	case reflect.Struct:
		members := membersOf(t)
		member, ok := members[word]
		if !ok {
			names := slices.Sorted(maps.Keys(members))
			return fmt.Sprintf("%s has no %q; did you mean %q?", here, word, strings.TrimSuffix(here, "/")+"/"+nearest(word, names))
		}
		return lead(member, next, words[1:])
	case reflect.Slice, reflect.Array:
		if _, err := strconv.ParseUint(word, 10, 31); err != nil && word != "*" {
			return fmt.Sprintf("%s is a list: after it comes a * for any entry, or a number, and not %q", here, word)
		}
		return lead(t.Elem(), next, words[1:])
	case reflect.Map:
		return lead(t.Elem(), next, words[1:])
	case reflect.Interface:
		return "" // anything
	}
	return fmt.Sprintf("%s has nothing below it", here)
}

// membersOf returns the types of a struct's members, by their names in JSON.
func membersOf(t reflect.Type) map[string]reflect.Type {
	members := map[string]reflect.Type{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			members[name] = f.Type
		}
	}
	return members
}
