package rktfront

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/podmanifest"
)

// spec returns the OCI spec of an app, without its volumes.
func spec(a *podmanifest.RuntimeApp, o *Options, root string) (*specs.Spec, error) {
	uid, gid, err := a.App.Identity(root)
	if err != nil {
		return nil, err
	}
	s := &specs.Spec{
		Version:  "1.0.2",
		Root:     &specs.Root{Path: root, Readonly: a.ReadOnly},
		Hostname: o.Hostname,
		Process: &specs.Process{
			Args: a.App.Exec, Env: a.App.RktEnv(a.Name), Cwd: cmp.Or(a.App.Directory, "/"),
			User: specs.User{UID: uid, GID: gid, AdditionalGids: a.App.Groups},
		},
		Linux: &specs.Linux{Namespaces: o.joined()},
	}
	if o.Holder != 0 {
		s.Hostname = "" // the holder has the hostname
	}
	files(s, o)
	if err := isolate(a.App, s, o); err != nil {
		return nil, err
	}
	return s, nil
}

// files adds the mounts of kernel file systems that every app gets.
func files(s *specs.Spec, o *Options) {
	s.Mounts = []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
	}
	if o.AnyPath {
		return
	}
	s.Linux.MaskedPaths = []string{"/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug", "/sys/firmware"}
	s.Linux.ReadonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

// mount adds the mount of a volume.
func mount(s *specs.Spec, pod string, of podmanifest.Shown) error {
	source, err := of.Volume.Path()
	if err != nil {
		return fmt.Errorf("volume %s: %w", of.Volume.Name, err)
	}
	if !filepath.IsAbs(source) {
		source = filepath.Join(pod, source)
	}
	options := []string{"bind"}
	if of.Volume.Deep() {
		options[0] = "rbind"
	}
	if of.ReadOnly {
		options = append(options, "ro")
	}
	s.Mounts = append(s.Mounts, specs.Mount{Destination: of.Path, Type: "bind", Source: source, Options: options})
	return nil
}
