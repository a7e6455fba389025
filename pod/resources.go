package pod

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// parseResources reads an OCI linux.resources object. What asks for something
// that this program does not know is an error that names it, because nothing else
// looks at it; so is what is no such object. Both unwrap to
// errdefs.ErrInvalidArgument.
func parseResources(text []byte) (*specs.LinuxResources, error) {
	r, err := spec.Read[specs.LinuxResources](text)
	if err != nil {
		return nil, fmt.Errorf("linux.resources: %v: %w", err, errdefs.ErrInvalidArgument)
	}
	if err := knowsResources(r.Root); err != nil {
		return nil, err
	}
	return &r.OCI, nil
}

// checkResources is parseResources of the object in a config.json. The names that lead to
// it are those that encoding/json takes for it.
func checkResources(root spec.Value) error {
	for m := root.Members(); m.Next(); {
		if !bytes.EqualFold(m.Name(), []byte("linux")) {
			continue
		}
		for m := m.Members(); m.Next(); {
			if !bytes.EqualFold(m.Name(), []byte("resources")) {
				continue
			}
			if err := knowsResources(m.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

func knowsResources(resources spec.Value) error {
	if name := unknown(resources, reflect.TypeFor[specs.LinuxResources](), "linux.resources"); name != "" {
		return fmt.Errorf("%s: not known to this version of the shim: %w", name, errdefs.ErrInvalidArgument)
	}
	return nil
}

// unknown returns the name of the first value that asks for something and that type t
// has no field for, or "". name is what the value itself is called.
func unknown(value spec.Value, t reflect.Type, name string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if !value.IsObject() {
		return unknownElement(value, t, name)
	}
	known := disk.Fields(t)
	for m := value.Members(); m.Next(); {
		key := string(m.Name())
		inner, ok := known[key]
		if t.Kind() == reflect.Map {
			inner, ok = t.Elem(), true
		}
		path := name + "." + key
		switch {
		case !ok && m.Asks():
			return path
		case ok:
			if found := unknown(m.Value, inner, path); found != "" {
				return found
			}
		}
	}
	return ""
}

// unknownElement is unknown for an array, and "" for what is none.
func unknownElement(value spec.Value, t reflect.Type, name string) string {
	if t.Kind() != reflect.Slice {
		return ""
	}
	for m := value.Members(); m.Next(); {
		if found := unknown(m.Value, t.Elem(), fmt.Sprintf("%s[%s]", name, m.Name())); found != "" {
			return found
		}
	}
	return ""
}
