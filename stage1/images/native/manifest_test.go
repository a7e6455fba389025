package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/appc/spec/schema"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/client"
)

func readManifest(t *testing.T) *schema.ImageManifest {
	t.Helper()
	b, err := os.ReadFile("manifest")
	must(t, err)
	m := schema.BlankImageManifest()
	must(t, json.Unmarshal(b, m)) // validates, too
	return m
}

func TestTheManifestDeclaresVersion7AndFeatures(t *testing.T) {
	m := readManifest(t)
	if v, _ := m.Annotations.Get(abi.AnnotationVersion); v != "7" {
		t.Errorf("interface version %q", v)
	}
	path, _ := m.Annotations.Get(abi.AnnotationFeatures)
	if b, err := os.ReadFile(filepath.Join(".", path)); err != nil || !json.Valid(b) {
		t.Errorf("the features document %q: %v", path, err)
	}
	if path, _ := m.Annotations.Get(abi.AnnotationServe); "stage1/rootfs"+path != client.Socket {
		t.Errorf("the socket %q is declared, and the supervisor listens on %s", path, client.Socket)
	}
}

// Without a pod each call fails. Its error shows whether the binary serves the
// entrypoint or does not know the name.
func TestEveryDeclaredEntrypointIsServed(t *testing.T) {
	m := readManifest(t)
	dir := t.TempDir()
	var declared []string
	for _, a := range m.Annotations {
		e, ok := strings.CutPrefix(string(a.Name), abi.AnnotationPrefix)
		if !ok || e == "interface-version" || e == "features" || e == "serve" || e == "skip" || e == "without" || e == "own" {
			continue
		}
		declared = append(declared, e)
		must(t, os.Symlink(binary, filepath.Join(dir, a.Value)))
		ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
		cmd := exec.CommandContext(ctx, filepath.Join(dir, a.Value))
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput() // without a pod some fail, in their own words
		if ctx.Err() != nil {
			t.Errorf("%s goes on without a pod", e)
		}
		cancel()
		if strings.Contains(string(out), "is not an entrypoint") {
			t.Errorf("%s: %s", e, out)
		}
	}
	slices.Sort(declared)
	want := []string{"app/add", "app/rm", "app/signal", "app/start", "app/stop", "enter", "gc", "run", "stop"}
	if !slices.Equal(declared, want) {
		t.Errorf("declared are %q, want %q", declared, want)
	}
}

func TestAnUnknownNameIsNoEntrypoint(t *testing.T) {
	out, err := exec.Command(binary).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "native is not an entrypoint") {
		t.Errorf("%v: %s", err, out)
	}
}
