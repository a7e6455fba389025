package pod

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
)

// parseResources reads an OCI linux.resources object. What asks for something
// that this program does not know is an error that names it, because nobody else
// will look at it; so is what is no such object. Both unwrap to
// errdefs.ErrInvalidArgument.
func parseResources(text []byte) (*specs.LinuxResources, error) {
	var res specs.LinuxResources
	if err := json.Unmarshal(text, &res); err != nil {
		return nil, fmt.Errorf("linux.resources: %v: %w", err, errdefs.ErrInvalidArgument)
	}
	var all any
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("linux.resources: %v: %w", err, errdefs.ErrInvalidArgument)
	}
	if name := unknown(all, reflect.TypeOf(res), "linux.resources"); name != "" {
		return nil, fmt.Errorf("%s: not known to this version of the shim: %w", name, errdefs.ErrInvalidArgument)
	}
	return &res, nil
}

// checkResources is parseResources of the object in a config.json.
func checkResources(spec []byte) error {
	var s struct {
		Linux struct {
			Resources json.RawMessage `json:"resources"`
		} `json:"linux"`
	}
	if err := json.Unmarshal(spec, &s); err != nil {
		return fmt.Errorf("%v: %w", err, errdefs.ErrInvalidArgument)
	}
	if s.Linux.Resources == nil {
		return nil
	}
	_, err := parseResources(s.Linux.Resources)
	return err
}

// unknown returns the name of the first value that is not empty and that type t
// has no field for, or "". name is what the value itself is called.
func unknown(value any, t reflect.Type, name string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := value.(type) {
	case []any:
		for i, e := range v {
			if t.Kind() != reflect.Slice {
				return ""
			}
			if found := unknown(e, t.Elem(), fmt.Sprintf("%s[%d]", name, i)); found != "" {
				return found
			}
		}
	case map[string]any:
		known := disk.Fields(t)
		for _, key := range slices.Sorted(maps.Keys(v)) {
			inner, ok := known[key]
			if t.Kind() == reflect.Map {
				inner, ok = t.Elem(), true
			}
			switch {
			case !ok && !empty(v[key]):
				return name + "." + key
			case ok:
				if found := unknown(v[key], inner, name+"."+key); found != "" {
					return found
				}
			}
		}
	}
	return ""
}

// empty reports whether a JSON value asks for nothing.
func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case bool:
		return !v
	case float64:
		return v == 0
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, e := range v {
			if !empty(e) {
				return false
			}
		}
		return true
	}
	return false
}
