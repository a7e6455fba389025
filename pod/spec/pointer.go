package spec

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/pod/spec/spelling"
)

// Miss says why a JSON pointer leads to no field of config.json.
type Miss struct {
	Why   string
	Meant string // the pointer up to the field that was probably meant, or empty
}

// Follow follows a JSON pointer, in which * stands for any index or key, in the OCI runtime
// spec. It returns nil if the pointer leads to a field that the spec known here has.
func Follow(pointer string) *Miss {
	return follow(reflect.TypeFor[specs.Spec](), "", strings.Split(strings.TrimPrefix(pointer, "/"), "/"))
}

// follow follows the remaining words of a pointer. t is the type of the field that the
// pointer has led to so far, and here is that field's pointer.
func follow(t reflect.Type, here string, words []string) *Miss {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(words) == 0 {
		return nil
	}
	word := words[0]
	next := here + "/" + word
	switch t.Kind() {
	case reflect.Struct:
		members := fieldsOf(t)
		member, ok := members[word]
		if !ok {
			return missing(here, word, slices.Sorted(maps.Keys(members)))
		}
		return follow(member, next, words[1:])
	case reflect.Slice, reflect.Array:
		if _, err := strconv.ParseUint(word, 10, 31); err != nil && word != "*" {
			return &Miss{Why: fmt.Sprintf("%s is a list: after it comes a * for any entry, or a number, and not %q", here, word)}
		}
		return follow(t.Elem(), next, words[1:])
	case reflect.Map:
		return follow(t.Elem(), next, words[1:])
	case reflect.Interface:
		return nil // any member may be here
	}
	return &Miss{Why: fmt.Sprintf("%s has nothing below it", here)}
}

func missing(here, word string, names []string) *Miss {
	m := &Miss{Why: fmt.Sprintf("%s has no %q; did you mean %q?", max(here, "/"), word, here+"/"+spelling.Nearest(word, names))}
	if likely := spelling.Likely(word, names); likely != "" {
		m.Meant = here + "/" + likely
	}
	return m
}
