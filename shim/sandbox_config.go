package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/sandbox"
	"github.com/rkt/containerd-shim-rkt-v1/wire"
)

// sandboxConfig translates a client's description of a sandbox, and returns the pod's
// annotations with it. CRI sends a message of its own. Other clients put an OCI spec into
// the bundle, or describe nothing.
func sandboxConfig(r *sandbox.CreateSandboxRequest, debug bool) (c pod.SandboxConfig, annotations map[string]string, err error) {
	c = pod.SandboxConfig{ID: r.SandboxId, Bundle: r.BundlePath, Debug: debug}
	if r.SandboxId == "" || !filepath.IsAbs(r.BundlePath) {
		return c, nil, fmt.Errorf("the id is empty or the bundle %q is not absolute: %w", r.BundlePath, errdefs.ErrInvalidArgument)
	}
	if !filepath.IsLocal(r.SandboxId) || filepath.Base(r.SandboxId) != r.SandboxId || strings.ContainsRune(r.SandboxId, 0) {
		return c, nil, fmt.Errorf("the id %q cannot be the name of a directory: %w", r.SandboxId, errdefs.ErrInvalidArgument)
	}
	switch name := messageName(r.Options); name {
	case sandbox.PodSandboxConfigName:
		annotations, err = fromCRI(&c, r)
	case "", "google.protobuf.Empty":
		annotations, err = fromSpec(&c, r)
	default:
		err = fmt.Errorf("options of the unknown type %q: %w", r.Options.GetTypeUrl(), errdefs.ErrInvalidArgument)
	}
	all := maps.Clone(r.Annotations)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, annotations)
	c.Annotations = all
	return c, all, err
}

// fromSpec takes the fields of an OCI spec that concern a pod. It ignores the spec's
// process, root and mounts: they describe a container that would hold the namespaces,
// and the pod has a holder instead. Without a spec the pod gets namespaces of its own.
func fromSpec(c *pod.SandboxConfig, r *sandbox.CreateSandboxRequest) (annotations map[string]string, err error) {
	var spec specs.Spec
	text, err := os.ReadFile(filepath.Join(c.Bundle, "config.json"))
	if err == nil {
		err = plainjson.Decode(text, &spec)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("spec of the sandbox: %w", err)
	}
	c.Hostname = spec.Hostname
	if spec.Linux == nil || len(spec.Linux.Namespaces) == 0 {
		spec.Linux = &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: "network"}, {Type: "ipc"}, {Type: "uts"}, {Type: "pid"}}}
	}
	for _, ns := range spec.Linux.Namespaces {
		switch ns.Type {
		case specs.MountNamespace, specs.CgroupNamespace: // each container has its own
			continue
		case specs.NetworkNamespace:
			if r.NetnsPath != "" {
				ns.Path = r.NetnsPath
			}
		}
		c.Namespaces = append(c.Namespaces, abi.Namespace{Type: string(ns.Type), Path: ns.Path})
	}
	c.Sysctl = spec.Linux.Sysctl
	c.CgroupsPath = spec.Linux.CgroupsPath
	c.UIDMappings, c.GIDMappings = ociMappings(spec.Linux.UIDMappings), ociMappings(spec.Linux.GIDMappings)
	return spec.Annotations, nil
}

func ociMappings(from []specs.LinuxIDMapping) []abi.IDMapping {
	var m []abi.IDMapping
	for _, l := range from {
		m = append(m, abi.IDMapping{ContainerID: l.ContainerID, HostID: l.HostID, Size: l.Size})
	}
	return m
}

// fromCRI translates CRI's message as containerd's own sandbox controller does for a pause
// container, and adds the files that the pod's containers expect.
func fromCRI(c *pod.SandboxConfig, r *sandbox.CreateSandboxRequest) (annotations map[string]string, err error) {
	var config sandbox.PodSandboxConfig
	if err := wire.Decode(r.Options.GetValue(), &config); err != nil {
		return nil, fmt.Errorf("%s: %v: %w", sandbox.PodSandboxConfigName, err, errdefs.ErrInvalidArgument)
	}
	linux := config.Linux
	options := linux.SecurityContext.NamespaceOptions
	if err := criNamespaces(c, options, r.NetnsPath); err != nil {
		return nil, err
	}
	c.Hostname = config.Hostname
	if options.Network == sandbox.ModeNode && c.Hostname != "" {
		return nil, fmt.Errorf("hostname %q: a pod in the host's network has the host's name, and none of its own: %w",
			c.Hostname, errdefs.ErrInvalidArgument)
	}
	c.Sysctl = criSysctl(linux.Sysctls, options)
	if parent := linux.CgroupParent; parent != "" {
		c.CgroupParent, c.CgroupsPath = parent, criCgroupsPath(parent, c.ID)
	}
	c.SELinux = selinuxLabel(linux.SecurityContext)
	c.Labels = config.Labels
	if r := linux.Resources; r != nil {
		c.Resources = pod.PodLimits(r.MemoryLimitInBytes, r.CpuQuota, r.CpuPeriod, r.CpuShares)
	}
	return config.Annotations, criFiles(c, &config)
}

// criNamespaces lists the namespaces that the pod does not share with its host.
// Like a pause container, a pod has a PID namespace even if each of its containers has its
// own: a later container may ask to share the pod's.
func criNamespaces(c *pod.SandboxConfig, o sandbox.NamespaceOption, netns string) error {
	host := sandbox.ModeNode
	if o.Network != host {
		c.Namespaces = append(c.Namespaces, abi.Namespace{Type: "network", Path: netns}, abi.Namespace{Type: "uts"})
	}
	if o.Ipc != host {
		c.Namespaces = append(c.Namespaces, abi.Namespace{Type: "ipc"})
	}
	if o.Pid != host {
		c.Namespaces = append(c.Namespaces, abi.Namespace{Type: "pid"})
	}
	user := o.UsernsOptions
	switch {
	case user == nil || user.Mode == host:
		return nil
	case user.Mode != sandbox.ModePod:
		return fmt.Errorf("user namespace mode %s: a pod has its own or the host's: %w", user.Mode, errdefs.ErrInvalidArgument)
	case len(user.Uids) == 0 || len(user.Gids) == 0:
		return fmt.Errorf("user namespace of the pod: no mapping of users or of groups: %w", errdefs.ErrInvalidArgument)
	}
	c.UIDMappings, c.GIDMappings = criMappings(user.Uids), criMappings(user.Gids)
	if o.Network != host && netns != "" {
		c.UserOf = netns // containerd has made the user namespace with netns
	} else {
		c.Namespaces = append(c.Namespaces, abi.Namespace{Type: "user"})
	}
	return nil
}

func criMappings(from []*sandbox.IDMapping) []abi.IDMapping {
	var m []abi.IDMapping
	for _, l := range from {
		m = append(m, abi.IDMapping{ContainerID: l.ContainerId, HostID: l.HostId, Size: l.Length})
	}
	return m
}

// criSysctl adds the sysctls that containerd's CRI sets in every pod with a network of its
// own. CRI can be configured not to set them, but a shim cannot see that configuration.
func criSysctl(asked map[string]string, o sandbox.NamespaceOption) map[string]string {
	all := map[string]string{}
	if o.Network != sandbox.ModeNode {
		all["net.ipv4.ip_unprivileged_port_start"] = "0"
		if user := o.UsernsOptions; user == nil || user.Mode == sandbox.ModeNode {
			all["net.ipv4.ping_group_range"] = "0 2147483647"
		}
	}
	maps.Copy(all, asked)
	return all
}

// criCgroupsPath names a cgroup below the pod's as containerd does, with either of
// the kubelet's drivers.
func criCgroupsPath(parent, id string) string {
	if base := filepath.Base(parent); strings.HasSuffix(base, ".slice") {
		return strings.Join([]string{base, "cri-containerd", id}, ":")
	}
	return filepath.Join(parent, id)
}
