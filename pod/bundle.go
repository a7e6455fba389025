package pod

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// writeBundle decides what RKT_BUNDLE names: the client's own bundle, or a copy
// of its config.json that an OCI runtime can be given as it is.
func (a *app) writeBundle() error {
	a.bundle = a.config.Bundle
	if a.ownBundleServes() {
		return nil
	}
	text, err := a.ociSpec()
	if err != nil {
		return fmt.Errorf("container %s: config.json for an OCI runtime: %w", a.id, err)
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

// ownBundleServes reports whether the client's own config.json leads an OCI
// runtime to the app's cgroup and root, asks for a terminal if the client does,
// and has no hooks that are for stage 0 to run.
func (a *app) ownBundleServes() bool {
	root := a.spec.Root.Path
	if !filepath.IsAbs(root) {
		root = filepath.Join(a.config.Bundle, root)
	}
	return a.spec.Linux != nil && a.spec.Linux.CgroupsPath == a.cgroup.Path() && root == a.rootfs &&
		a.spec.Process.Terminal == a.terminal && (a.spec.Hooks == nil || len(a.spec.Hooks.Poststop) == 0)
}

// object is a JSON object, kept generic: what this version of the spec's types
// does not know stays in it.
type object map[string]json.RawMessage

// ociSpec returns the client's config.json with what ownBundleServes missed.
func (a *app) ociSpec() ([]byte, error) {
	var spec object
	if err := json.Unmarshal(a.config.Spec, &spec); err != nil {
		return nil, err
	}
	if err := spec.set("root", specs.Root{Path: a.rootfs, Readonly: a.spec.Root.Readonly}); err != nil {
		return nil, err
	}
	for name, change := range map[string]func(object) error{
		"linux":   func(o object) error { return o.set("cgroupsPath", a.cgroup.Path()) },
		"process": func(o object) error { return o.set("terminal", a.terminal) },
		"hooks":   func(o object) error { delete(o, "poststop"); return nil },
	} {
		if err := spec.edit(name, change); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := a.absoluteSources(spec); err != nil {
		return nil, fmt.Errorf("mounts: %w", err)
	}
	return json.Marshal(spec)
}

// absoluteSources replaces sources of bind mounts that are relative to the
// client's bundle.
func (a *app) absoluteSources(spec object) error {
	var mounts []object
	if text, ok := spec["mounts"]; ok {
		if err := json.Unmarshal(text, &mounts); err != nil {
			return err
		}
	}
	changed := false
	for i, m := range a.spec.Mounts {
		if filepath.IsAbs(m.Source) || !isBind(m) {
			continue
		}
		changed = true
		if err := mounts[i].set("source", filepath.Join(a.config.Bundle, m.Source)); err != nil {
			return err
		}
	}
	if !changed {
		return nil
	}
	return spec.set("mounts", mounts)
}

func isBind(m specs.Mount) bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}

// edit changes the object that is a member of this one, and makes it first.
func (o object) edit(name string, change func(object) error) error {
	member := object{}
	if text, ok := o[name]; ok {
		if err := json.Unmarshal(text, &member); err != nil {
			return err
		}
	}
	if member == nil { // null
		member = object{}
	}
	if err := change(member); err != nil {
		return err
	}
	return o.set(name, member)
}

func (o object) set(name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	o[name] = text
	return nil
}
