package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// bundleOf makes a bundle with a config.json.
func bundleOf(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// White space changes as well.
func TestOnlyARelativePathOfTheRootIsChanged(t *testing.T) {
	dir := bundleOf(t, `{"ociVersion": "9.0", "unknown": {"a": [1.50]}, "root": {"path": ".", "new": 12345678901234567890}}`)
	got, err := readSpec(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"ociVersion": "9.0", "unknown": {"a":[1.50]}, "root": {"path": "` + dir + `", "new": 12345678901234567890}}`
	if !reflect.DeepEqual(members(t, got), members(t, []byte(want))) {
		t.Errorf("%s, want %s", got, want)
	}
}

// members returns the members of an object and of its root, as text.
func members(t *testing.T, text []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, prefix := range []string{"", "root"} {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(text, &object); err != nil {
			t.Fatal(err)
		}
		for name, value := range object {
			if prefix+name != "root" {
				all[prefix+"/"+name] = string(value)
			}
		}
		text = object["root"]
	}
	return all
}

func TestAnAbsoluteRootLeavesTheSpecByteForByte(t *testing.T) {
	for _, config := range []string{"{ \"root\": {\"path\": \"/x\"},\n\t\"ociVersion\": \"1.0\" }\n", `{"ociVersion": "invalid"}`} {
		if got, err := readSpec(bundleOf(t, config)); err != nil || string(got) != config {
			t.Errorf("%q: %q, %v", config, got, err)
		}
	}
}

func TestAStandardStreamIsPassedOnIfItIsARegularFile(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got := path(file); got != file.Name() {
		t.Errorf("%q, want %q", got, file.Name())
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	if got := path(write); got != "" {
		t.Errorf("a pipe: %q", got)
	}
}
