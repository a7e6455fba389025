package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
)

// A hook would lose its output, and the hooks after it would not run, if rktctl ended before it.
func TestACollectionEndsAfterThePoststopHooksThatItHasBegun(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	spec := &specs.Spec{Version: "1.2.0", Hooks: &specs.Hooks{Poststop: []specs.Hook{
		{Path: "/bin/sh", Args: []string{"sh", "-c", "sleep 0.2; echo first >>" + out}},
		{Path: "/bin/sh", Args: []string{"sh", "-c", "echo second >>" + out}},
	}}}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	err := withCollector(t.Context(), t.TempDir(), func(c *disk.Collector) error {
		d, err := c.Store.Create(disk.Key{Daemon: "/run/c.sock", Namespace: "n", Sandbox: "c"}, disk.Stage1Record{Name: "native", Digest: "sha512-ab12"}, nil)
		if err != nil {
			return err
		}
		a, err := d.AddApp("c", t.TempDir(), spec)
		if err != nil {
			return err
		}
		if err := a.Poststop(over); err == nil || !strings.Contains(err.Error(), "hooks go on") {
			t.Errorf("the call ended with %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(out); err != nil || string(text) != "first\nsecond\n" {
		t.Errorf("the hooks have written %q, %v", text, err)
	}
}
