package supervisor

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// CheckSpec returns an error with exit code 7 if a VM cannot have the first app of its pod, whose spec `run` is told. The
// client then learns of that before the VM boots, which takes minutes on a busy host. Other errors, such as that of a missing
// file, are left to app/add: the file may come until then.
func (s *Share) CheckSpec(r *abi.Request) error {
	if r.Sandbox != nil || r.Spec == nil {
		return nil
	}
	dir := s.Name("")
	_, binds, err := translateSpec(r, dir, func(int) int { return 0 }) // no app has a proxy yet
	if err == nil {
		var files *Files
		files, err = s.Add(dir, binds)
		files.Remove()
		closeBinds(binds)
	}
	if serve.CodeOf(err) == abi.ExitNotImplemented {
		return err
	}
	return nil
}

// translate returns the spec of an app for the machine, and the files of the host that it
// names: its root, and the sources of its bind mounts, which will be in the directory dir of the
// share. What a machine cannot give is an error with exit code 7 that names the field.
//
// insideOf returns the pid in the machine of the process for which a proxy stands, or 0.
func translate(r *abi.Request, dir string, insideOf func(proxy int) int) (*translated, []Bind, error) {
	spec, binds, err := translateSpec(r, dir, insideOf)
	if err != nil || len(r.Mounts) > 0 { // a root on disks
		return spec, binds, err
	}
	root, err := openBind(r.Rootfs)
	if err != nil {
		closeBinds(binds)
		return nil, nil, fmt.Errorf("the app's root: %w", err)
	}
	root.Recursive = true
	binds[0] = root
	return spec, binds, nil
}

// translateSpec is translate without the root: the first bind has no file.
func translateSpec(r *abi.Request, dir string, insideOf func(proxy int) int) (*translated, []Bind, error) {
	var spec specs.Spec
	if err := json.Unmarshal(r.Spec, &spec); err != nil {
		return nil, nil, fmt.Errorf("the app's spec: %w", err)
	}
	if spec.Linux == nil || spec.Process == nil {
		return nil, nil, serve.Unsupported("the app's spec has no process, or no linux: a machine is in namespaces of its own")
	}
	result := &translated{Spec: &spec, hooks: spec.Hooks}
	if err := translateNamespaces(result, insideOf); err != nil {
		return nil, nil, err
	}
	if spec.Hooks != nil {
		spec.Hooks = &specs.Hooks{StartContainer: spec.Hooks.StartContainer}
	}
	spec.Linux.CgroupsPath = ""
	spec.Linux.Sysctl, result.sysctl = ofNetwork(spec.Linux.Sysctl)
	binds, err := translateMounts(r, dir, result)
	if err == nil {
		err = translateDevices(r.App, result)
	}
	if err != nil {
		closeBinds(binds)
		return nil, nil, err
	}
	return result, binds, nil
}

// translated is the spec of an app for the machine, and what of the client's is for the host.
type translated struct {
	*specs.Spec
	hooks  *specs.Hooks      // all of them
	netns  string            // the path of the network namespace that it is to join; "" is a new one
	users  *channel.Mappings // of a new user namespace, or nil
	sysctl map[string]string // of the machine's network
	// volumes are block devices of the host. The mounts of the spec have the nodes in the machine.
	volumes []*volume
	shm     *channel.Shm // or nil
}

// needed are the namespaces that an app must have: another one would be the host's.
var needed = []specs.LinuxNamespaceType{specs.NetworkNamespace, specs.MountNamespace, specs.PIDNamespace, specs.IPCNamespace, specs.UTSNamespace}

// translateNamespaces makes the app a part of the machine, which takes over the app's network namespace. A
// namespace that is not listed would be the host's.
func translateNamespaces(t *translated, insideOf func(int) int) error {
	l := t.Linux
	for _, need := range needed {
		if !slices.ContainsFunc(l.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == need }) {
			return serve.Unsupported("linux.namespaces: without %q the app would be in the host's, which a machine cannot reach", need)
		}
	}
	for i, n := range l.Namespaces {
		inside := namespaceInside(n.Path, insideOf)
		switch {
		case n.Type == specs.NetworkNamespace:
			t.netns = n.Path
		case n.Type == specs.TimeNamespace:
			return serve.Unsupported("linux.namespaces[%d].type: %q is not supported in a machine", i, n.Type)
		case inside != "":
			l.Namespaces[i].Path = inside
		case n.Type == specs.UserNamespace && len(l.UIDMappings) > 0 && len(l.GIDMappings) > 0:
			// Also in place of one that containerd has made for the pod: the machine's has the same mappings.
			users := mappings(l.UIDMappings, l.GIDMappings)
			t.users = &users
			l.Namespaces[i].Path = channel.GuestUser
		case n.Path != "":
			return serve.Unsupported("linux.namespaces[%d].path: %s is not of an app of this pod, and a machine cannot join it", i, n.Path)
		case n.Type == specs.UserNamespace:
			return fmt.Errorf("linux.namespaces[%d]: a new user namespace needs linux.uidMappings and linux.gidMappings", i)
		}
	}
	l.Namespaces = slices.DeleteFunc(l.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.NetworkNamespace })
	return nil
}

func mappings(uids, gids []specs.LinuxIDMapping) channel.Mappings {
	return channel.Mappings{UIDs: idMappings(uids), GIDs: idMappings(gids)}
}

func idMappings(from []specs.LinuxIDMapping) (to []abi.IDMapping) {
	for _, m := range from {
		to = append(to, abi.IDMapping{ContainerID: m.ContainerID, HostID: m.HostID, Size: m.Size})
	}
	return to
}

// joinNetwork adds the network namespace of the pod's user namespace, if the pod has one. Otherwise the app is
// in the machine's own.
func (t *translated) joinNetwork(users *channel.Mappings) error {
	if users != nil {
		t.Linux.Namespaces = append(t.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: channel.GuestNetwork})
		return nil
	}
	if i := slices.IndexFunc(t.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.UserNamespace }); i >= 0 {
		return serve.Unsupported("linux.namespaces[%d].path: the user namespace of that process is the machine's own", i)
	}
	return nil
}

// namespaceFile is the path of a namespace of a process.
var namespaceFile = regexp.MustCompile(`^/proc/([1-9][0-9]*)/ns/(cgroup|ipc|mnt|pid|user|uts)$`)

// namespaceInside returns the path in the machine of a namespace that a client knows by the pid of
// an app's proxy, or "".
func namespaceInside(path string, insideOf func(int) int) string {
	words := namespaceFile.FindStringSubmatch(path)
	if words == nil {
		return ""
	}
	proxy, err := strconv.Atoi(words[1])
	if err != nil {
		return ""
	}
	pid := insideOf(proxy)
	if pid == 0 {
		return ""
	}
	return fmt.Sprintf("/proc/%d/ns/%s", pid, words[2])
}

// translateMounts replaces the sources of bind mounts by paths in the machine. The first bind is left to the root.
func translateMounts(r *abi.Request, dir string, spec *translated) (binds []Bind, err error) {
	binds = append(binds, Bind{})
	for i := range spec.Mounts {
		m := &spec.Mounts[i]
		bind, recursive := isBind(m)
		if !bind {
			if err := checkMount(i, m); err != nil {
				return binds, err
			}
			continue
		}
		for _, o := range m.Options {
			switch o {
			case "shared", "rshared", "slave", "rslave":
				return binds, serve.Unsupported("mounts[%d].options: %q: mounts do not propagate into a machine", i, o)
			}
		}
		ids, err := idMapOf(m, spec.Linux)
		if err != nil {
			return binds, fmt.Errorf("mounts[%d].uidMappings: %w", i, err)
		}
		m.Source = absolute(r.Bundle, m.Source)
		if node := blockDevice(m.Source); node != nil {
			if ids != nil {
				return binds, serve.Unsupported("mounts[%d].uidMappings: %s is a block device, whose node the machine has", i, m.Source)
			}
			v := spec.volume(r.App, unix.Major(node.Rdev), unix.Minor(node.Rdev))
			v.field, v.readOnly = fmt.Sprintf("mounts[%d].source", i), abi.ReadOnly(m.Options)
			v.Mode, v.UID, v.GID = node.Mode&0o7777, node.Uid, node.Gid
			m.Source = v.Node
			continue
		}
		if hidden(m.Source) {
			return binds, serve.Unsupported("mounts[%d].source: %s of the host cannot be shared with a machine", i, m.Source)
		}
		b, err := openBind(m.Source)
		if err != nil {
			if f, ok := err.(*serve.Failure); ok {
				return binds, serve.Unsupported("mounts[%d].source: %s", i, f.Text)
			}
			return binds, fmt.Errorf("mounts[%d].source: %w", i, err)
		}
		if filepath.Clean(m.Destination) == "/dev/shm" {
			shm, err := shmOf(b.File)
			if shm != nil || err != nil {
				b.File.Close()
			}
			if err != nil {
				return binds, fmt.Errorf("mounts[%d].source: %w", i, err)
			}
			if shm != nil {
				spec.shm, m.Source = shm, shm.Path
				continue
			}
		}
		b.Recursive, b.readOnly, b.ids = recursive, abi.ReadOnly(m.Options), ids
		m.Source = inGuest(dir, len(binds))
		binds = append(binds, b)
	}
	return binds, nil
}

func isBind(m *specs.Mount) (bind, recursive bool) {
	recursive = slices.Contains(m.Options, "rbind")
	return m.Type == "bind" || recursive || slices.Contains(m.Options, "bind"), recursive
}

func absolute(bundle, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(bundle, path)
}

// mountTypes are the file systems that the guest's kernel makes.
var mountTypes = []string{"proc", "sysfs", "tmpfs", "mqueue", "devpts", "cgroup", "cgroup2"}

func checkMount(i int, m *specs.Mount) error {
	if !slices.Contains(mountTypes, m.Type) {
		return serve.Unsupported("mounts[%d].type: %q is not supported in a machine", i, m.Type)
	}
	return nil
}

// hidden reports whether a path is one of the host's devices.
func hidden(path string) bool {
	return path == "/dev" || strings.HasPrefix(path, "/dev/") && path != "/dev/shm" && !strings.HasPrefix(path, "/dev/shm/")
}

// isDev reports whether a file is in the file system of the host's devices, whatever its path. Its type is a tmpfs's.
func isDev(st *unix.Stat_t) bool {
	var dev, root unix.Stat_t
	if unix.Stat("/dev", &dev) != nil || unix.Stat("/", &root) != nil {
		return true
	}
	return st.Dev == dev.Dev && dev.Dev != root.Dev
}

// kernels are the file systems whose files mean the host's kernel, which virtiofsd could read
// in its own name.
var kernels = map[int64]string{
	unix.PROC_SUPER_MAGIC: "proc", unix.SYSFS_MAGIC: "sysfs", unix.CGROUP_SUPER_MAGIC: "cgroup", unix.CGROUP2_SUPER_MAGIC: "cgroup2",
	unix.DEVPTS_SUPER_MAGIC: "devpts", unix.DEBUGFS_MAGIC: "debugfs", unix.TRACEFS_MAGIC: "tracefs", unix.SECURITYFS_MAGIC: "securityfs",
	unix.BPF_FS_MAGIC: "bpf", unix.PSTOREFS_MAGIC: "pstore", unix.EFIVARFS_MAGIC: "efivarfs", unix.SELINUX_MAGIC: "selinuxfs",
	unix.NSFS_MAGIC: "nsfs", unix.BINFMTFS_MAGIC: "binfmt_misc", 0x19800202: "mqueue", 0x62656570: "configfs",
}

// kernelTypes are the same as types of mounts, and devtmpfs, whose number is tmpfs's.
var kernelTypes = append(slices.Collect(maps.Values(kernels)), "devtmpfs")

// openBind opens a file or directory to share. What is shared is what was looked at.
func openBind(path string) (b Bind, err error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return b, &os.PathError{Op: "open", Path: path, Err: err}
	}
	b.File = os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	var sys unix.Statfs_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = unix.Fstatfs(fd, &sys)
	}
	kind := st.Mode & unix.S_IFMT
	b.Dir = kind == unix.S_IFDIR
	switch {
	case err != nil:
		err = &os.PathError{Op: "look at", Path: path, Err: err}
	case isDev(&st):
		err = serve.Unsupported("%s is in the host's /dev, which cannot be shared with a machine", path)
	case kernels[int64(sys.Type)] != "":
		err = serve.Unsupported("%s is in the host's %s, which cannot be shared with a machine", path, kernels[int64(sys.Type)])
	case kind != unix.S_IFDIR && kind != unix.S_IFREG:
		err = serve.Unsupported("%s is a socket, a pipe or a device: it cannot be shared with a machine", path)
	}
	if err != nil {
		b.File.Close()
	}
	return b, err
}
