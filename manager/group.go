package manager

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// annotationPrefix is what our annotations begin with; a dot or a slash follows.
const annotationPrefix = "io.containerd.rkt.v1"

// GroupAnnotation puts a container into the pod of that name, before anything
// else that could.
const GroupAnnotation = annotationPrefix + ".group"

// groupAnnotations in the order in which they count. The second is what clients
// and tests written for runc's shim use.
var groupAnnotations = [...]string{
	GroupAnnotation,
	"io.containerd.runc.v2.group",
	"io.kubernetes.cri.sandbox-id",
}

// groupOf returns the group of the container id with the given bundle. A bundle
// without a config.json belongs to a sandbox, which is its own group.
func groupOf(bundle, id string, known []string) (string, error) {
	annotations, err := readAnnotations(filepath.Join(bundle, "config.json"))
	if err != nil {
		return "", err
	}
	if err := checkAnnotations(annotations, known); err != nil {
		return "", err
	}
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

// readAnnotations reads config.json up to its annotations: what follows them,
// such as a seccomp profile, is most of it and is not looked at.
func readAnnotations(path string) (map[string]string, error) {
	f, err := os.Open(path)
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
		if key == "annotations" {
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

// noEOF says what the end of a file in the middle of an object is.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// checkAnnotations refuses keys below our prefix that nobody reads: a misspelt
// one would otherwise be a setting that does nothing.
func checkAnnotations(annotations map[string]string, known []string) error {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		rest, ours := strings.CutPrefix(key, annotationPrefix)
		if !ours || rest == "" || rest[0] != '.' && rest[0] != '/' || key == GroupAnnotation {
			continue
		}
		nearest, distance := GroupAnnotation, editDistance(key, GroupAnnotation)
		for _, k := range known {
			if d := editDistance(key, k); d < distance {
				nearest, distance = k, d
			}
		}
		if distance > 0 {
			return fmt.Errorf("unknown annotation %q: the nearest known one is %q", key, nearest)
		}
	}
	return nil
}

// editDistance is Levenshtein's, in bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
