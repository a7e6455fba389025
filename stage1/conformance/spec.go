package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// plainSpec returns the spec of an app that runs a verb of the kit's program: a minimal
// spec, with the isolation that the image declares.
func (k *Kit) plainSpec(verb ...string) *specs.Spec {
	s := &specs.Spec{
		Version: "1.0.2",
		Root:    &specs.Root{Path: k.rootfs},
		Process: &specs.Process{Args: append([]string{k.values.inRoot()}, verb...), Cwd: "/", Env: []string{"PATH=/bin"}},
		Linux:   &specs.Linux{},
	}
	if k.isolates {
		isolate(s)
		if k.image.Owns(abi.OwnProcesses) { // an app that is not on the host is not in its network
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace})
		}
	}
	return s
}

// isolate adds the isolation that nearly every container has.
func isolate(s *specs.Spec) {
	s.Linux.Namespaces = []specs.LinuxNamespace{
		{Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
	}
	s.Mounts = []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=755"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"newinstance", "ptmxmode=0666", "mode=0620"}},
	}
}

// declares returns an error that names the fields of a spec that the image does not
// declare.
func (k *Kit) declares(s *specs.Spec) error {
	app, err := read(s)
	if err != nil {
		return err
	}
	_, err = k.stage1.CheckSpec(app)
	return err
}

// honours reports whether the image itself declares all fields of a spec. Fields that the
// operator lets it ignore do not count.
func (k *Kit) honours(s *specs.Spec) bool {
	app, err := read(s)
	if err != nil {
		return false
	}
	bare, err := k.stage1Of(k.image, nil)
	if err == nil {
		_, err = bare.CheckSpec(app)
	}
	return err == nil
}

// read encodes and reads a spec, or the process of an exec, as if a client had sent it.
func read[T any](s *T) (*spec.Document[T], error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return spec.Read[T](raw)
}

// makeRoot makes the root of all apps: the kit's program, a file with data, and files that
// cannot be executed.
func makeRoot(dir, program string, v *values) error {
	for _, d := range []string{"bin", v.data, "dev", "mnt", "proc", "sys", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	if err := copyFile(program, filepath.Join(dir, v.inRoot())); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, v.data, "file"), []byte(v.text+"\n"), 0o644); err != nil {
		return err
	}
	for name, mode := range map[string]os.FileMode{"bin/not-executable": 0o644, "bin/no-format": 0o755} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte{0x7f, 0, 0xff}, mode); err != nil {
			return err
		}
	}
	return nil
}

// bundleOf writes a bundle for a spec, and returns its directory and the spec as the shim
// reads it.
func (t *trial) bundleOf(s *specs.Spec) (dir string, app *spec.App) {
	app = must(read(s))
	dir = must(os.MkdirTemp(t.dir, "bundle-"))
	try(os.Chmod(dir, 0o711)) // other users may own the files that are mounted below it
	if err := os.WriteFile(filepath.Join(dir, "config.json"), app.Text, 0o600); err != nil {
		try(fmt.Errorf("write a bundle: %w", err))
	}
	return dir, app
}
