package conformance

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// lines is how long all programs of a guide may be together.
var lines = map[Example]int{Runc: 100, Bubblewrap: 220}

func TestTheGuidesAreShort(t *testing.T) {
	for _, e := range Examples() {
		n := 0
		for _, f := range Skeleton(e) {
			if !strings.HasSuffix(f.Path, ".json") && f.Path != "manifest" {
				n += strings.Count(f.Text, "\n")
			}
		}
		if n == 0 || n >= lines[e] {
			t.Errorf("%s: %d lines, want fewer than %d", e, n, lines[e])
		}
	}
}

func TestTheGuidesImagesAreComplete(t *testing.T) {
	for _, e := range Examples() {
		t.Run(string(e), func(t *testing.T) { isComplete(t, e) })
	}
}

func isComplete(t *testing.T, e Example) {
	dir := filepath.Join(t.TempDir(), "mine")
	if err := WriteSkeleton(dir, e); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "manifest"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Annotations []struct{ Name, Value string }
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	for _, a := range manifest.Annotations {
		if !strings.HasPrefix(a.Value, "/") {
			continue
		}
		st, err := os.Stat(filepath.Join(dir, "rootfs", a.Value))
		if err != nil || (st.Mode()&0o111 != 0) != (a.Name != "coreos.com/rkt/stage1/features") {
			t.Errorf("%s: %v, %v", a.Name, err, st)
		}
	}
	if err := WriteSkeleton(dir, e); !errors.Is(err, fs.ErrExist) {
		t.Errorf("written over what is there: %v", err)
	}
	if err := WriteSkeleton(t.TempDir(), e); err != nil {
		t.Errorf("into an empty directory: %v", err)
	}
}

func TestTheGuidesScriptsAreOfPOSIX(t *testing.T) {
	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Skip("needs shellcheck")
	}
	for _, e := range Examples() {
		t.Run(string(e), func(t *testing.T) { isPOSIX(t, e) })
	}
}

func isPOSIX(t *testing.T, e Example) {
	dir := filepath.Join(t.TempDir(), "mine")
	if err := WriteSkeleton(dir, e); err != nil {
		t.Fatal(err)
	}
	args := []string{"--source-path=SCRIPTDIR", "--external-sources"}
	for _, f := range Skeleton(e) {
		if f.Executable() {
			if !strings.HasPrefix(f.Text, "#!/bin/sh\n") {
				t.Errorf("%s is not of /bin/sh", f.Path)
			}
		}
		if f.Executable() || strings.HasPrefix(f.Text, "# shellcheck shell=sh\n") {
			args = append(args, filepath.Join(dir, f.Path))
		}
	}
	if out, err := exec.Command("shellcheck", args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestBlocksWithAPathAreFiles(t *testing.T) {
	files := parseSkeleton("text\n```sh a/b\none\n\ntwo\n```\n```\nnot one\n```\n```sh\nneither\n```\n```json c\n{}\n```\n")
	want := []SkeletonFile{{"a/b", "one\n\ntwo\n"}, {"c", "{}\n"}}
	if !slices.Equal(files, want) {
		t.Errorf("%q", files)
	}
}
