package supervisor

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

// kind is a type of namespace: the spec's word, the kernel's flag and file.
type kind struct {
	name specs.LinuxNamespaceType
	flag int
	file string // in /proc/PID/ns
}

// kinds returns those that this stage1 knows.
func kinds() []kind {
	return []kind{
		{specs.MountNamespace, unix.CLONE_NEWNS, "mnt"},
		{specs.PIDNamespace, unix.CLONE_NEWPID, "pid"},
		{specs.NetworkNamespace, unix.CLONE_NEWNET, "net"},
		{specs.IPCNamespace, unix.CLONE_NEWIPC, "ipc"},
		{specs.UTSNamespace, unix.CLONE_NEWUTS, "uts"},
		{specs.CgroupNamespace, unix.CLONE_NEWCGROUP, "cgroup"},
		{specs.TimeNamespace, unix.CLONE_NEWTIME, "time"},
		{specs.UserNamespace, unix.CLONE_NEWUSER, "user"},
	}
}

func kindOf(name specs.LinuxNamespaceType) (kind, bool) {
	for _, k := range kinds() {
		if k.name == name {
			return k, true
		}
	}
	return kind{}, false
}

// enlist sets the namespaces of an app's first process: those to join and those
// to make. The caller closes the joined ones, also after an error.
func enlist(p *fork.Process, linux *specs.Linux) error {
	listed := 0
	var user *fork.Join
	for i, n := range linux.Namespaces {
		k, ok := kindOf(n.Type)
		if !ok {
			return unsupported("linux.namespaces[%d].type: %q is not supported", i, n.Type)
		}
		if listed&k.flag != 0 {
			return fmt.Errorf("linux.namespaces[%d].type: %q is listed twice", i, n.Type)
		}
		listed |= k.flag
		if n.Path == "" {
			if k.flag != unix.CLONE_NEWCGROUP { // init's, once it is in its cgroup
				p.New |= uintptr(k.flag)
			}
			continue
		}
		if k.flag == unix.CLONE_NEWNS {
			return unsupported("linux.namespaces[%d].path: joining a mount namespace is not supported", i)
		}
		j, err := openNamespace(k, n.Path)
		if err != nil {
			return err
		}
		if k.flag == unix.CLONE_NEWUSER {
			user = j
			continue
		}
		p.Joins = append(p.Joins, *j)
	}
	// Last, because the others may belong to the host, and then need the
	// host's rights.
	if user != nil {
		p.Joins = append(p.Joins, *user)
	}
	if listed&unix.CLONE_NEWNS == 0 {
		return unsupported("linux.namespaces: an app without a mount namespace of its own is not supported")
	}
	p.Clocks = clocks(linux.TimeOffsets)
	return mapIDs(p, linux, listed)
}

// clocks are offsets as the kernel takes them. Package container has refused
// those without a new time namespace.
func clocks(offsets map[string]specs.LinuxTimeOffset) []byte {
	var text []byte
	for name, o := range offsets {
		text = fmt.Appendf(text, "%s %d %d\n", name, o.Secs, o.Nanosecs)
	}
	return text
}

// mapIDs sets the id maps of a new user namespace. Those of a joined one are
// what they are.
func mapIDs(p *fork.Process, linux *specs.Linux, listed int) error {
	if listed&unix.CLONE_NEWUSER == 0 {
		if len(linux.UIDMappings)+len(linux.GIDMappings) > 0 {
			return errors.New("linux.uidMappings and linux.gidMappings need a user namespace in linux.namespaces")
		}
		return nil
	}
	p.Root = true
	if p.New&unix.CLONE_NEWUSER == 0 {
		return nil
	}
	if len(linux.UIDMappings) == 0 || len(linux.GIDMappings) == 0 {
		return errors.New("a new user namespace needs linux.uidMappings and linux.gidMappings")
	}
	p.UIDMappings, p.GIDMappings = mappings(linux.UIDMappings), mappings(linux.GIDMappings)
	return nil
}

func mappings(from []specs.LinuxIDMapping) []fork.IDMapping {
	var m []fork.IDMapping
	for _, l := range from {
		m = append(m, fork.IDMapping{Inside: l.ContainerID, Outside: l.HostID, Size: l.Size})
	}
	return m
}

func openNamespace(k kind, path string) (*fork.Join, error) {
	what := fmt.Sprintf("%s namespace %s", k.name, path)
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", what, errors.Unwrap(err))
	}
	flag, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || flag != k.flag {
		f.Close()
		return nil, fmt.Errorf("joining %s: it is not a %s namespace", what, k.name)
	}
	return &fork.Join{What: what, File: f, Flags: flag}, nil
}

func closeJoins(joins []fork.Join) {
	for _, j := range joins {
		j.File.Close()
	}
}

// differing returns the flags of the namespaces in which a process is and this
// one is not: those that a further process of its app has to join.
func differing(pid int) (int, error) {
	flags := 0
	for _, k := range kinds() {
		theirs, err := namespaceID(fmt.Sprintf("/proc/%d/ns/%s", pid, k.file))
		if errors.Is(err, unix.ENOENT) {
			continue // a kernel without it
		}
		if err != nil {
			return 0, err
		}
		ours, err := namespaceID("/proc/self/ns/" + k.file)
		if err != nil {
			return 0, err
		}
		if theirs != ours {
			flags |= k.flag
		}
	}
	return flags, nil
}

// namespaceID is what the kernel identifies a namespace by.
type nsID struct{ dev, ino uint64 }

func namespaceID(path string) (nsID, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return nsID{}, fmt.Errorf("look at namespace %s: %w", path, err)
	}
	return nsID{st.Dev, st.Ino}, nil
}
