package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"
)

// bundleLabel is the container's label with the bundle's path.
const bundleLabel = "oci/bundle"

// specURL is the type with which containerd's own client stores a spec.
const specURL = "types.containerd.io/opencontainers/runtime-spec/1/Spec"

func create(ctx context.Context, client *containerd.Client, args []string) (int, error) {
	flags := newFlags("create")
	bundle := flags.String("bundle", ".", "the bundle")
	pidFile := flags.String("pid-file", "", "file for the pid")
	id, _, err := parse(flags, args)
	if err != nil {
		return 0, err
	}
	if *bundle, err = filepath.Abs(*bundle); err != nil {
		return 0, err
	}
	spec, err := readSpec(*bundle)
	if err != nil {
		return 0, err
	}
	container, err := client.NewContainer(ctx, id, containerd.WithRuntime(os.Getenv(runtimeVariable), nil),
		containerd.WithContainerLabels(map[string]string{bundleLabel: *bundle}), withText(spec))
	if err != nil {
		return 0, err
	}
	task, err := container.NewTask(ctx, standardStreams)
	if err != nil {
		return 0, errors.Join(err, container.Delete(ctx))
	}
	if *pidFile == "" {
		return 0, nil
	}
	return 0, os.WriteFile(*pidFile, fmt.Append(nil, task.Pid()), 0o644)
}

// withText sets a container's spec to a text. The usual option of containerd's client would
// drop fields that its Go types do not have.
func withText(spec []byte) containerd.NewContainerOpts {
	return func(_ context.Context, _ *containerd.Client, c *containers.Container) error {
		c.Spec = &anypb.Any{TypeUrl: specURL, Value: spec}
		return nil
	}
}

// readSpec reads a bundle's config.json. It makes a relative path of the root absolute,
// because that path is relative to this bundle, and the shim has another bundle.
func readSpec(bundle string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return nil, err
	}
	var root struct{ Root *specs.Root }
	if err := json.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	if root.Root == nil || filepath.IsAbs(root.Root.Path) {
		return text, nil
	}
	return setMember(text, filepath.Join(bundle, root.Root.Path), "root", "path")
}

// setMember sets a member of a JSON object, at a path of names, and keeps the text of all
// other members.
func setMember(text []byte, value string, names ...string) ([]byte, error) {
	if len(names) == 0 {
		return json.Marshal(value)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	inner, err := setMember(object[names[0]], value, names[1:]...)
	if err != nil {
		return nil, err
	}
	object[names[0]] = inner
	return json.Marshal(object)
}

// standardStreams gives a container the regular files that are this process's standard
// output and error, as runtime-tools' programs set them. Shims open the files by their
// paths, so no process has to copy output until the container ends. If a stream is no
// regular file, the container gets none.
func standardStreams(string) (cio.IO, error) {
	set := &cio.FIFOSet{Config: cio.Config{Stdout: path(os.Stdout), Stderr: path(os.Stderr)}}
	return cio.Load(set)
}

// path returns the path of a regular file, or an empty string for any other file.
func path(f *os.File) string {
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return ""
	}
	return name
}
