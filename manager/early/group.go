package early

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/config/annotation"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// groupAnnotations lists the annotations that name a group; the first one that is set
// counts. Clients and tests of runc's shim use the second.
var groupAnnotations = [...]string{
	annotation.Group,
	"io.containerd.runc.v2.group",
	"io.kubernetes.cri.sandbox-id",
}

// AnnotationsOf returns the annotations of the container with the given bundle, and
// none for a sandbox, whose bundle has no config.json.
func AnnotationsOf(bundle string) (map[string]string, error) {
	annotations, err := readAnnotations(filepath.Join(bundle, "config.json"))
	if err != nil {
		return nil, err
	}
	return annotations, annotation.Check(annotations)
}

// GroupOf returns the group of the container id with these annotations. A container
// without such an annotation, and a sandbox, is a group of its own.
func GroupOf(annotations map[string]string, id string) (string, error) {
	for _, key := range groupAnnotations {
		group := annotations[key]
		if group == "" {
			continue
		}
		// "../other/id" would name a socket of another namespace.
		if err := checkName(group); err != nil {
			return "", fmt.Errorf("annotation %s: group %q: %w", key, group, err)
		}
		return group, nil
	}
	return id, nil
}

// readAnnotations reads config.json up to its annotations. It does not read the rest,
// which is the greater part: a seccomp profile, for example.
func readAnnotations(path string) (map[string]string, error) {
	f, err := proc.OpenFile(path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	annotations, err := scanAnnotations(json.NewDecoder(bufio.NewReaderSize(f, 16<<10)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return annotations, nil
}

func scanAnnotations(dec *json.Decoder) (map[string]string, error) {
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(errors.New("not a JSON object"), noEOF(err))
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, noEOF(err)
		}
		// encoding/json, with which containerd and the server read the document, ignores case.
		if name, _ := key.(string); strings.EqualFold(name, "annotations") {
			var annotations map[string]string
			if err := dec.Decode(&annotations); err != nil {
				return nil, fmt.Errorf("annotations: %w", noEOF(err))
			}
			return annotations, nil
		}
		var skipped json.RawMessage
		if err := dec.Decode(&skipped); err != nil {
			return nil, noEOF(err)
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, noEOF(err)
	}
	return nil, nil
}

// noEOF turns io.EOF into io.ErrUnexpectedEOF, because the file must not end inside
// an object.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
