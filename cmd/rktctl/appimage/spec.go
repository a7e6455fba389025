package appimage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// SpecConfig says what is not in the image's configuration.
type SpecConfig struct {
	ID        string   // of the app; with Namespace it makes the cgroup's path
	Namespace string   // "rkt" if it is empty
	Args      []string // replace the arguments of the image's program
	Exec      []string // replaces the image's program and its arguments; Args follow
	// Unconfined leaves the app without a filter of system calls. Otherwise it has
	// containerd's default profile, unless an option has set another.
	Unconfined bool
	// Options are applied after the image's configuration, in order: those of containerd's
	// package oci, for mounts, users, capabilities, limits, annotations, and anything else.
	// They find the image's root file system at the spec's root.path.
	Options []oci.SpecOpts
}

// Spec returns the OCI spec of an app. It is the spec that containerd's client makes of the
// same configuration, with the default devices and the default seccomp profile. Its root is
// the directory rootfs of a bundle. It needs no access to a containerd.
func (i *Image) Spec(ctx context.Context, c SpecConfig) (_ *specs.Spec, err error) {
	defer prefix(&err, "spec of %s", c.ID)
	config := i.config
	if len(c.Exec) > 0 {
		config.Config.Entrypoint, config.Config.Cmd = c.Exec, nil
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	if err := checkUserFiles(i.Root()); err != nil {
		return nil, err
	}
	options := []oci.SpecOpts{
		oci.WithDefaultUnixDevices,
		oci.WithRootFSPath(i.Root()), // names of users are those of its files
		oci.WithImageConfigArgs(configured(text), c.Args),
	}
	if i.app != nil {
		options = append(options, i.app.option(i.Root(), &c.Unconfined))
	}
	options = append(options, c.Options...)
	options = append(options, oci.WithRootFSPath("rootfs"), func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
		if len(s.Process.Args) == 0 {
			return invalid("neither the image nor the caller names a program")
		}
		if !c.Unconfined && s.Linux.Seccomp == nil {
			s.Linux.Seccomp = seccomp.DefaultProfile(s) // depends on the capabilities
		}
		return nil
	})
	ctx = namespaces.WithNamespace(ctx, cmp.Or(c.Namespace, "rkt"))
	return oci.GenerateSpec(ctx, nil, &containers.Container{ID: c.ID}, options...)
}

// checkUserFiles refuses a root file system in which a file that names users is not a regular
// one: package oci opens these files, and the open of a fifo waits for a writer.
func checkUserFiles(root string) error {
	for _, name := range []string{"etc/passwd", "etc/group"} {
		f, err := pathrs.OpenInRoot(root, name) // O_PATH
		if err != nil {
			continue // there is none, or package oci says why it cannot be read
		}
		st, err := f.Stat()
		if err == nil && !st.Mode().IsRegular() {
			err = invalid("/%s is not a regular file", name)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// configured is a configuration of an image in the form in which package oci reads it.
type configured []byte

var _ oci.Image = configured(nil)

// Config implements oci.Image. The descriptor has the content.
func (c configured) Config(context.Context) (ocispec.Descriptor, error) {
	return ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: digest.FromBytes(c), Size: int64(len(c)), Data: c}, nil
}

// ContentStore implements oci.Image. Nothing is read from it.
func (configured) ContentStore() content.Store { return nil }

// MountPoint is a directory at which an image expects a volume. Without one, the app's files
// there are in its root file system.
type MountPoint struct {
	Name     string // in an ACI; elsewhere the path
	Path     string
	ReadOnly bool
}

// MountPoints returns the image's mount points, sorted by their paths.
func (i *Image) MountPoints() []MountPoint {
	if i.app != nil {
		return i.app.mountPoints()
	}
	var all []MountPoint
	for path := range i.config.Config.Volumes {
		all = append(all, MountPoint{Name: path, Path: path})
	}
	slices.SortFunc(all, func(a, b MountPoint) int { return cmp.Compare(a.Path, b.Path) })
	return all
}
