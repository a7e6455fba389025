// Package spec reads a JSON text of the OCI runtime spec once: config.json, the process of
// an exec, or the resources of an update. The result has everything that stage 0 and the
// callers of stage1s need: the text byte for byte, its values as Go's types, and the place
// of every value in the text, even of values that the Go types do not have.
package spec

import (
	"fmt"
	"math"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
)

// Document is a text that was read. It must not be changed.
type Document[T any] struct {
	OCI  T
	Text []byte // as the client wrote it
	Root Value
}

// The documents that clients send.
type (
	App       = Document[specs.Spec]           // config.json
	Process   = Document[specs.Process]        // of an exec
	Resources = Document[specs.LinuxResources] // of an update
)

// Read reads a text, which the document keeps. The errors are those of encoding/json.
func Read[T any](text []byte) (*Document[T], error) {
	if len(text) > math.MaxInt32 {
		return nil, fmt.Errorf("it has %d bytes", len(text))
	}
	d := &Document[T]{Text: text}
	if err := plainjson.Decode(text, &d.OCI); err != nil {
		return nil, err
	}
	d.Root = newIndex(text)
	return d, nil
}

// Namespace reports whether a spec asks for a namespace of a kind, and returns the path of
// the namespace to join, or "" for a new one.
func Namespace(s *specs.Spec, kind specs.LinuxNamespaceType) (path string, asked bool) {
	if s.Linux == nil {
		return "", false
	}
	for _, ns := range s.Linux.Namespaces {
		if ns.Type == kind {
			return ns.Path, true
		}
	}
	return "", false
}
