package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/appimage"
)

// Volume is a directory or file of the host that an app sees.
type Volume struct {
	Source   string // absolute path on the host
	Target   string // absolute path in the app
	ReadOnly bool
}

// ParseVolume reads SOURCE:TARGET or SOURCE:TARGET:ro.
func ParseVolume(s string) (Volume, error) {
	f := strings.Split(s, ":")
	v := Volume{ReadOnly: len(f) == 3 && f[2] == "ro"}
	if len(f) < 2 || len(f) > 3 || len(f) == 3 && f[2] != "ro" && f[2] != "rw" || !filepath.IsAbs(f[0]) || !filepath.IsAbs(f[1]) {
		return v, fmt.Errorf("volume %q: it is SOURCE:TARGET or SOURCE:TARGET:ro, with absolute paths: %w", s, errdefs.ErrInvalidArgument)
	}
	v.Source, v.Target = filepath.Clean(f[0]), filepath.Clean(f[1])
	return v, nil
}

// check refuses a request that can be seen to be wrong.
func (c *AppConfig) check() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("app %s: %s: %w", c.Name, fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
	}
	for _, e := range c.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			return invalid("environment %q: it is NAME=VALUE", e)
		}
	}
	if c.Cwd != "" && !filepath.IsAbs(c.Cwd) {
		return invalid("working directory %q is not absolute", c.Cwd)
	}
	return nil
}

// spec returns the OCI runtime spec of an app: what containerd's client makes of the image's
// configuration, with the namespaces and the cgroup of the pod.
func (a *app) spec(ctx context.Context, i *appimage.Image, c AppConfig) (*specs.Spec, error) {
	options := []oci.SpecOpts{oci.WithEnv(c.Env), oci.WithMounts(a.mounts(c))}
	if c.Terminal {
		options = append(options, oci.WithTTY)
	}
	if c.User != "" {
		options = append(options, oci.WithUser(c.User))
	}
	if c.Cwd != "" {
		options = append(options, oci.WithProcessCwd(c.Cwd))
	}
	if c.Memory > 0 {
		options = append(options, oci.WithMemoryLimit(uint64(c.Memory)))
	}
	s, err := i.Spec(ctx, appimage.SpecConfig{ID: a.name, Namespace: Namespace, Args: c.Args, Exec: c.Exec, Options: options})
	if err != nil {
		return nil, err
	}
	s.Linux.CgroupsPath = filepath.Join(a.pod.record.Cgroup, a.name)
	s.Linux.Namespaces = a.namespaces()
	return s, nil
}

// mounts lists the volumes of an app. An app that has a network other than a loopback device also
// sees the host's files for the resolution of names.
func (a *app) mounts(c AppConfig) []specs.Mount {
	var all []specs.Mount
	bind := func(v Volume) {
		options := []string{"rbind", "rprivate", "rw"}
		if v.ReadOnly {
			options[2] = "ro"
		}
		all = append(all, specs.Mount{Type: "bind", Source: v.Source, Destination: v.Target, Options: options})
	}
	files := []string{"/etc/resolv.conf"}
	switch a.pod.record.Network {
	case NetworkNone:
		files = nil
	case NetworkHost:
		files = append(files, "/etc/hosts")
	}
	for _, file := range files {
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() {
			bind(Volume{Source: file, Target: file, ReadOnly: true})
		}
	}
	for _, v := range c.Volumes {
		bind(v)
	}
	return all
}

// environment returns the variables of an exec: the app's, and those of the request, which
// replace variables of the same name.
func environment(app, asked []string, terminal bool) []string {
	if terminal && !slices.ContainsFunc(app, func(e string) bool { return strings.HasPrefix(e, "TERM=") }) {
		app = append(slices.Clone(app), "TERM=xterm")
	}
	for _, e := range asked {
		name, _, _ := strings.Cut(e, "=")
		app = slices.DeleteFunc(slices.Clone(app), func(old string) bool { return strings.HasPrefix(old, name+"=") })
		app = append(app, e)
	}
	return app
}

// namespaces lists those of the pod, which its holder keeps, and the app's own.
func (a *app) namespaces() []specs.LinuxNamespace {
	of := func(file string) string { return fmt.Sprintf("/proc/%d/ns/%s", a.pod.record.Holder, file) }
	list := []specs.LinuxNamespace{
		{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.CgroupNamespace},
		{Type: specs.IPCNamespace, Path: of("ipc")},
	}
	if a.pod.record.Network != NetworkHost {
		list = append(list, specs.LinuxNamespace{Type: specs.UTSNamespace, Path: of("uts")},
			specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: of("net")})
	}
	return list
}
