package hold

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// Spec describes a process with the namespaces of a sandbox, that can do
// and see nothing. It has a root of its own: who shares its PID namespace may be
// able to look into /proc/1/root.
func Spec(rootfs string, s *abi.Sandbox, label, cgroupsPath string) *specs.Spec {
	spec := &specs.Spec{
		Version: "1.0.2",
		Process: &specs.Process{
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
			Seccomp:     filter(),
		},
	}
	has := map[string]bool{}
	for _, ns := range s.Namespaces {
		has[ns.Type] = true
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.LinuxNamespaceType(ns.Type), Path: ns.Path})
		if ns.Type == string(specs.UserNamespace) { // runc wants to know those of one that it joins, too
			spec.Linux.UIDMappings, spec.Linux.GIDMappings = mappings(s.UIDMappings), mappings(s.GIDMappings)
		}
	}
	if has[string(specs.PIDNamespace)] || !has[string(specs.UserNamespace)] { // else it may not
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}})
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

// filter allows what the holder does, and what an OCI runtime does between
// the loading of the filter and the program.
func filter() *specs.LinuxSeccomp {
	names := []string{
		"rt_sigaction", "pause", "ppoll", "exit", "exit_group", "execve", "execveat",
		"brk", "capget", "capset", "clock_nanosleep", "close", "close_range", "dup3", "epoll_ctl", "epoll_pwait",
		"faccessat", "faccessat2", "fchdir", "fcntl", "fstat", "fstatfs", "futex", "getdents64", "getpid", "getppid", "gettid",
		"getuid", "madvise", "mmap", "mprotect", "munmap", "nanosleep", "newfstatat", "openat", "prctl", "read", "readlinkat",
		"rt_sigprocmask", "rt_sigreturn", "sched_yield", "setgid", "setgroups", "setuid", "sigaltstack", "stat", "tgkill", "write",
	}
	slices.Sort(names)
	return &specs.LinuxSeccomp{
		DefaultAction: specs.ActErrno,
		Syscalls:      []specs.LinuxSyscall{{Names: names, Action: specs.ActAllow}},
	}
}

// Limits give the holder the least share of the CPU that there is: it never
// runs.
func Limits() *specs.LinuxResources {
	shares := uint64(2)
	return &specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: &shares}}
}
