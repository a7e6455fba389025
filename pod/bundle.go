package pod

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// writeBundle decides what RKT_BUNDLE names: the client's own bundle, or, if its
// config.json does not say where the app's cgroup is, a copy of it that does. A
// stage1 that hands the bundle to an OCI runtime arrives in our cgroup then.
func (a *app) writeBundle() error {
	a.bundle = a.config.Bundle
	if a.spec.Linux != nil && a.spec.Linux.CgroupsPath == a.cgroup.Path() {
		return nil
	}
	// A generic map: what this version of the spec's types does not know is kept.
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(a.config.Spec, &raw); err != nil {
		return fmt.Errorf("container %s: %w", a.id, err)
	}
	linux := map[string]json.RawMessage{}
	if l, ok := raw["linux"]; ok {
		if err := json.Unmarshal(l, &linux); err != nil {
			return fmt.Errorf("container %s: linux of its spec: %w", a.id, err)
		}
	}
	if linux == nil {
		linux = map[string]json.RawMessage{}
	}
	root := specs.Root{Path: a.rootfs, Readonly: a.spec.Root.Readonly}
	for _, f := range []struct {
		in    map[string]json.RawMessage
		name  string
		value any
	}{{linux, "cgroupsPath", a.cgroup.Path()}, {raw, "linux", &linux}, {raw, "root", root}} {
		text, err := json.Marshal(f.value)
		if err != nil {
			return fmt.Errorf("container %s: %s of its spec: %w", a.id, f.name, err)
		}
		f.in[f.name] = text
	}
	text, err := json.Marshal(raw)
	if err != nil {
		return fmt.Errorf("container %s: %w", a.id, err)
	}
	dir := filepath.Join(a.disk.Path(), "bundle")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("container %s: %w", a.id, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
		return fmt.Errorf("container %s: %w", a.id, err)
	}
	a.bundle = dir
	return nil
}
