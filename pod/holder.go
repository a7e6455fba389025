package pod

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// holderLimits gives the holder the least share of the CPU that there is: it never
// runs.
func holderLimits() *specs.LinuxResources {
	shares := uint64(2)
	return &specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: &shares}}
}

// holderDir is where in the data directory the root of every holder is. It is
// reachable for the mapped users of user namespaces, which a pod is not.
const holderDir = "holder"

// holderRoot returns the root file system of holders: their program, and what to
// mount on. It is made once and not changed, and so has the name of its content.
func (s *Store) holderRoot() (string, error) {
	program, err := holdProgram()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(program)
	dir := filepath.Join(s.dir, holderDir, hex.EncodeToString(sum[:hashLen]))
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	made, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(made) // not there any more, if all goes well
	for _, d := range []string{"proc", "dev"} {
		if err := os.Mkdir(filepath.Join(made, d), 0o755); err != nil {
			return "", err
		}
	}
	if err := os.WriteFile(filepath.Join(made, "hold"), program, 0o755); err != nil {
		return "", err
	}
	for _, d := range []string{made, filepath.Join(made, "hold"), filepath.Join(made, "proc"), filepath.Join(made, "dev")} {
		if err := os.Chmod(d, 0o755); err != nil { // whatever the umask
			return "", err
		}
	}
	err = os.Rename(made, dir)
	if errors.Is(err, fs.ErrExist) {
		err = nil // another shim's, which is as good
	}
	return dir, err
}

// writeHolder makes the OCI bundle of a pod's holder in the directory dir: a
// stage1 that can run an app can run this. It returns config.json.
func writeHolder(dir, rootfs string, s *abi.Sandbox, label, cgroupsPath string) ([]byte, error) {
	text, err := json.Marshal(holderSpec(rootfs, s, label, cgroupsPath))
	if err != nil {
		return nil, err
	}
	return text, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600)
}

// holderSpec describes a process with the namespaces of a sandbox, that can do
// and see nothing. It has a root of its own: who shares its PID namespace may be
// able to look into /proc/1/root.
func holderSpec(rootfs string, s *abi.Sandbox, label, cgroupsPath string) *specs.Spec {
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
			Resources:   holderLimits(),
			Seccomp:     holderSeccomp(),
		},
	}
	has := map[string]bool{}
	for _, ns := range s.Namespaces {
		has[ns.Type] = true
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.LinuxNamespaceType(ns.Type), Path: ns.Path})
		if ns.Type == string(specs.UserNamespace) { // runc wants to know those of one that it joins, too
			spec.Linux.UIDMappings, spec.Linux.GIDMappings = ociMappings(s.UIDMappings), ociMappings(s.GIDMappings)
		}
	}
	if has[string(specs.PIDNamespace)] || !has[string(specs.UserNamespace)] { // else it may not
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}})
	}
	return spec
}

func ociMappings(from []abi.IDMapping) []specs.LinuxIDMapping {
	var m []specs.LinuxIDMapping
	for _, l := range from {
		m = append(m, specs.LinuxIDMapping{ContainerID: l.ContainerID, HostID: l.HostID, Size: l.Size})
	}
	return m
}

// holderSeccomp allows what the holder does, and what an OCI runtime does between
// the loading of the filter and the program.
func holderSeccomp() *specs.LinuxSeccomp {
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

// checkHolder makes sure that a process holds the namespaces of a sandbox: a
// stage1 that does not know of sandboxes would leave a pod in the host's.
func checkHolder(pid int, s *abi.Sandbox) error {
	files := map[string]string{"network": "net", "mount": "mnt"}
	for _, ns := range s.Namespaces {
		file := files[ns.Type]
		if file == "" {
			file = ns.Type
		}
		theirs, err := os.Stat(fmt.Sprintf("/proc/%d/ns/%s", pid, file))
		if err != nil {
			return fmt.Errorf("look at its %s namespace: %w", ns.Type, err)
		}
		other, wanted := "/proc/self/ns/"+file, false
		if ns.Path != "" {
			other, wanted = ns.Path, true
		}
		named, err := os.Stat(other)
		if err != nil {
			return fmt.Errorf("look at the %s namespace %s: %w", ns.Type, other, err)
		}
		if os.SameFile(theirs, named) != wanted {
			return fmt.Errorf("it is not in the %s namespace of the pod", ns.Type)
		}
	}
	return nil
}
