package shim

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// specURL is the type of a spec in containerd's messages.
const specURL = "types.containerd.io/opencontainers/runtime-spec/1/Spec"

// sandboxSpec describes a running pod as the spec of a pause container would. NRI's
// plugins, and people who inspect a pod, look there for its namespaces. A namespace that
// the pod has made is given as a path in /proc of the process that holds it.
func sandboxSpec(c pod.SandboxConfig, pid int) *specs.Spec {
	spec := &specs.Spec{
		Version:  specs.Version,
		Hostname: c.Hostname,
		Linux:    &specs.Linux{CgroupsPath: c.CgroupsPath, Sysctl: c.Sysctl},
	}
	for _, ns := range c.Namespaces {
		path := ns.Path
		if path == "" {
			path = fmt.Sprintf("/proc/%d/ns/%s", pid, namespaceFile(specs.LinuxNamespaceType(ns.Type)))
		}
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.LinuxNamespaceType(ns.Type), Path: path})
	}
	for _, m := range c.UIDMappings {
		spec.Linux.UIDMappings = append(spec.Linux.UIDMappings, specs.LinuxIDMapping{ContainerID: m.ContainerID, HostID: m.HostID, Size: m.Size})
	}
	for _, m := range c.GIDMappings {
		spec.Linux.GIDMappings = append(spec.Linux.GIDMappings, specs.LinuxIDMapping{ContainerID: m.ContainerID, HostID: m.HostID, Size: m.Size})
	}
	return spec
}

// namespaceFile is the name of a kind of namespace in /proc/PID/ns.
func namespaceFile(kind specs.LinuxNamespaceType) string {
	switch kind {
	case specs.NetworkNamespace:
		return "net"
	case specs.MountNamespace:
		return "mnt"
	default:
		return string(kind)
	}
}

// networkClosed reports whether the network namespace that was passed to the pod has been
// unmounted, and so the pod's network is gone.
func networkClosed(c pod.SandboxConfig) bool {
	for _, ns := range c.Namespaces {
		if specs.LinuxNamespaceType(ns.Type) != specs.NetworkNamespace || ns.Path == "" {
			continue
		}
		var fs unix.Statfs_t
		err := unix.Statfs(ns.Path, &fs)
		return err != nil || fs.Type != unix.NSFS_MAGIC && fs.Type != unix.PROC_SUPER_MAGIC
	}
	return false
}

// packSpec puts a spec into a message.
func packSpec(spec *specs.Spec) (*anypb.Any, error) {
	text, err := plainjson.Encode(spec)
	if err != nil {
		return nil, fmt.Errorf("describe the sandbox: %w", err)
	}
	return &anypb.Any{TypeUrl: specURL, Value: text}, nil
}
