package stage1test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// Scripts are the bodies of entrypoints, for /bin/sh with set -eu. They can call
// the functions ready PID and fail CODE WORDS...
type Scripts map[abi.Entrypoint]string

// prelude is the beginning of every script.
const prelude = `#!/bin/sh
set -eu
ready() { echo "{\"pid\": $1}" >&"$RKT_READY_FD"; }
fail() { code=$1; shift; echo "$*" >&"$RKT_ERROR_FD"; exit "$code"; }
`

// Minimal returns the scripts of a stage1 that does as little as is allowed: its
// supervisor and each of its apps is a sleep, and stage 0 records the exits.
func Minimal() Scripts {
	return Scripts{
		abi.Run: `ready $$; exec sleep 1000`,
		abi.AppAdd: `sleep 1000 3>&- 4>&- &
ready $!`,
		abi.AppStart: `exit 0`,
		abi.AppRm:    `exit 0`,
	}
}

// Dir makes an image directory with scripts, and with the scripts of Minimal for
// all other entrypoints. The directory is removed at the end of the test.
func Dir(tb testing.TB, scripts Scripts) string {
	tb.Helper()
	return Image{Scripts: scripts}.Dir(tb)
}

// Image describes an image to make.
type Image struct {
	Name     string  // appc name; "rkt.io/stage1-fake" if it is empty
	Scripts  Scripts // replace those of Minimal
	Features string  // features document; none if it is empty
	// Annotations are added to the manifest and replace annotations that it has
	// otherwise. An empty value removes an annotation.
	Annotations map[string]string
}

// Dir makes the image's directory, which is removed at the end of the test.
func (i Image) Dir(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	annotations := map[string]string{abi.AnnotationVersion: strconv.Itoa(abi.Version)}
	scripts := Minimal()
	maps.Copy(scripts, i.Scripts)
	for e, body := range scripts {
		path := "/" + strings.ReplaceAll(string(e), "/", "_")
		annotations[abi.AnnotationPrefix+string(e)] = path
		write(tb, filepath.Join(dir, "rootfs", path), prelude+body+"\n", 0o755)
	}
	if i.Features != "" {
		annotations[abi.AnnotationFeatures] = "/features.json"
		write(tb, filepath.Join(dir, "rootfs/features.json"), i.Features, 0o644)
	}
	maps.Copy(annotations, i.Annotations)
	write(tb, filepath.Join(dir, "manifest"), manifest(tb, i.Name, annotations), 0o644)
	return dir
}

func manifest(tb testing.TB, name string, annotations map[string]string) string {
	tb.Helper()
	if name == "" {
		name = "rkt.io/stage1-fake"
	}
	type pair struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	var list []pair
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if annotations[key] != "" {
			list = append(list, pair{key, annotations[key]})
		}
	}
	text, err := json.MarshalIndent(map[string]any{
		"acKind": "ImageManifest", "acVersion": "0.8.11", "name": name, "annotations": list,
	}, "", "  ")
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// RequireRoot skips a test that needs root.
func RequireRoot(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("needs root, for mounts and owners")
	}
}

// Replace removes a file, for example an entrypoint, and calls the function by to
// make another one in its place.
func Replace(path string, by func(string, os.FileMode) error) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return by(path, 0o755)
}

func write(tb testing.TB, path, text string, mode os.FileMode) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		tb.Fatal(err)
	}
}
