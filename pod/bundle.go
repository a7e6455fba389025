package pod

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// writeBundle decides which bundle RKT_BUNDLE names: the client's own bundle, or a
// derived one with a copy of config.json that an OCI runtime can use unchanged.
func (a *app) writeBundle() error {
	a.bundle = a.config.Bundle
	if a.ownBundleServes() {
		return nil
	}
	dir := filepath.Join(a.disk.Path(), "bundle")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("container %s: %w", a.id, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), a.ociSpec(), 0o600); err != nil {
		return fmt.Errorf("container %s: %w", a.id, err)
	}
	a.bundle = dir
	return nil
}

// ownBundleServes reports whether an OCI runtime can use the client's own config.json:
// it leads to the app's cgroup and root, asks for a terminal if the client does, and
// has no hooks that stage 0 runs.
func (a *app) ownBundleServes() bool {
	spec := a.spec()
	root := spec.Root.Path
	if !filepath.IsAbs(root) {
		root = filepath.Join(a.config.Bundle, root)
	}
	return spec.Linux != nil && spec.Linux.CgroupsPath == a.cgroup.Path() && root == a.rootfs &&
		spec.Process.Terminal == a.terminal && (spec.Hooks == nil || len(spec.Hooks.Poststop) == 0)
}

// ociSpec returns the client's config.json with the changes that ownBundleServes asks
// for. It keeps fields that this version of the spec's types does not have.
func (a *app) ociSpec() []byte {
	set := func(name string, value any) spec.Change {
		return spec.Change{Name: name, To: func(spec.Value) []byte { return encode(value) }}
	}
	within := func(name string, c spec.Change) spec.Change {
		return spec.Change{Name: name, To: func(v spec.Value) []byte { return v.With(c) }}
	}
	changes := []spec.Change{
		set("root", specs.Root{Path: a.rootfs, Readonly: a.spec().Root.Readonly}),
		within("linux", set("cgroupsPath", a.cgroup.Path())),
		within("process", set("terminal", a.terminal)),
		within("hooks", spec.Change{Name: "poststop", To: func(spec.Value) []byte { return nil }}),
	}
	if slices.ContainsFunc(a.spec().Mounts, isRelativeBind) {
		changes = append(changes, spec.Change{Name: "mounts", To: a.absoluteSources})
	}
	return a.config.Spec.Root.With(changes...)
}

// absoluteSources returns the mounts of the spec. It makes sources absolute that are
// relative to the client's bundle.
func (a *app) absoluteSources(mounts spec.Value) []byte {
	var texts [][]byte
	for v := mounts.Members(); v.Next(); {
		text := v.Raw()
		if m := a.spec().Mounts[len(texts)]; isRelativeBind(m) {
			source := encode(filepath.Join(a.config.Bundle, m.Source))
			text = v.With(spec.Change{Name: "source", To: func(spec.Value) []byte { return source }})
		}
		texts = append(texts, text)
	}
	return slices.Concat([]byte("["), bytes.Join(texts, []byte(",")), []byte("]"))
}

func isRelativeBind(m specs.Mount) bool {
	bind := m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
	return bind && !filepath.IsAbs(m.Source)
}

// encode returns the text of a value that can always be encoded.
func encode(value any) []byte {
	text, _ := plainjson.Encode(value)
	return text
}
