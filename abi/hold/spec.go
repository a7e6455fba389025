package hold

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// pauseID is the user and group of Kubernetes' pause image.
const pauseID = 65535

// Spec describes the holder: a process in the namespaces of a sandbox, without privileges
// and without files of the host. It has its own root and user, because a container that
// shares its PID namespace, or uses the host's, may be able to look into /proc/PID/root.
//
// The spec mounts a /proc, because OCI runtimes need one to start a process. As in CRI's
// containers, the parts of /proc that belong to the host are masked or read-only. The spec
// has no seccomp filter, because a runtime makes system calls between loading the filter
// and the exec, and these differ from release to release. The program filters its own
// calls.
func Spec(rootfs string, s *abi.Sandbox, label, cgroupsPath string) *specs.Spec {
	spec := &specs.Spec{
		Version: "1.0.2",
		Process: &specs.Process{
			User:            specs.User{UID: idIn(s, s.UIDMappings), GID: idIn(s, s.GIDMappings)},
			Args:            []string{"/hold"},
			Cwd:             "/",
			Capabilities:    &specs.LinuxCapabilities{},
			NoNewPrivileges: true,
			SelinuxLabel:    label,
		},
		Root:     &specs.Root{Path: rootfs, Readonly: true},
		Hostname: s.Hostname,
		Mounts:   []specs.Mount{{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "mode=755", "size=64k"}}},
		Linux: &specs.Linux{
			Namespaces:  []specs.LinuxNamespace{{Type: specs.MountNamespace}},
			Sysctl:      s.Sysctl,
			CgroupsPath: cgroupsPath,
			Resources:   Limits(),
		},
	}
	has := map[string]bool{}
	for _, ns := range s.Namespaces {
		has[ns.Type] = true
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.LinuxNamespaceType(ns.Type), Path: ns.Path})
		if ns.Type == string(specs.UserNamespace) { // runc needs the maps even for a namespace that it joins
			spec.Linux.UIDMappings, spec.Linux.GIDMappings = mappings(s.UIDMappings), mappings(s.GIDMappings)
		}
	}
	if has[string(specs.PIDNamespace)] || !has[string(specs.UserNamespace)] { // otherwise it has no right to mount a procfs
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}})
		spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths = maskedPaths(), readonlyPaths()
	}
	return spec
}

func mappings(from []abi.IDMapping) []specs.LinuxIDMapping {
	var m []specs.LinuxIDMapping
	for _, l := range from {
		m = append(m, specs.LinuxIDMapping{ContainerID: l.ContainerID, HostID: l.HostID, Size: l.Size})
	}
	return m
}

// idIn returns the user or group of a holder. It is pauseID or, if the pod has a user
// namespace that does not map pauseID, the highest id that the namespace maps. If the maps
// are not known, it is root.
func idIn(s *abi.Sandbox, maps []abi.IDMapping) uint32 {
	if !slices.ContainsFunc(s.Namespaces, func(ns abi.Namespace) bool { return ns.Type == string(specs.UserNamespace) }) {
		return pauseID
	}
	highest := uint32(0)
	for _, m := range maps {
		if m.Size == 0 {
			continue
		}
		last := m.ContainerID + (m.Size - 1)
		if m.ContainerID <= pauseID && pauseID <= last {
			return pauseID
		}
		highest = max(highest, last)
	}
	return highest
}

// WithoutProc removes /proc from the spec of a holder, for a stage1 that can execute a
// program without /proc.
func WithoutProc(spec *specs.Spec) {
	spec.Mounts = slices.DeleteFunc(spec.Mounts, func(m specs.Mount) bool { return m.Type == "proc" })
	spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths = nil, nil
}

// maskedPaths returns the paths below /proc that containerd masks for an unprivileged
// container of CRI.
func maskedPaths() []string {
	return []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
	}
}

// readonlyPaths returns the paths that containerd makes read-only for such a container.
func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

// Limits gives the holder the smallest possible share of the CPU, because it only sleeps.
func Limits() *specs.LinuxResources {
	shares := uint64(2)
	return &specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: &shares}}
}
