package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTheFeaturesAreThoseOfTheImageIfThereCanBeMachines(t *testing.T) {
	if _, err := os.Stat("/usr/bin/qemu-system-x86_64"); err != nil {
		t.Skip(err)
	}
	document, err := os.ReadFile("features.json")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(t.TempDir())
	kernel := filepath.Join(dir, "vmlinux")
	for name, text := range map[string]string{
		"features.json": string(document), "vmlinux": "",
		imageSettings: fmt.Sprintf(`{"kernel": %q, "modules": %q, "accel": "tcg"}`, kernel, kernel),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := writeFeatures(&out, dir, filepath.Join(dir, "node.json")); err != nil {
		t.Fatal(err)
	}
	var got, want map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(document, &want); err != nil {
		t.Fatal(err)
	}
	files, _ := got["files"].([]any)
	if !slices.Contains(files, any(kernel)) || !slices.Contains(files, any(filepath.Join(dir, "node.json"))) {
		t.Errorf("the answer depends on %v", files)
	}
	delete(got, "files")
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the answer is %v", got)
	}

	if err := os.Remove(kernel); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	err = writeFeatures(&out, dir, filepath.Join(dir, "node.json"))
	if err == nil || !strings.Contains(err.Error(), kernel+" is missing") || out.Len() > 0 {
		t.Errorf("without a kernel: %v, %s", err, out.String())
	}
}
