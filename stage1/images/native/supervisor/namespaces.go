package supervisor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

// enlist sets the namespaces that an app's first process joins or makes. The caller closes
// the files of joined ones, even after an error.
func enlist(p *fork.Process, linux *specs.Linux) error {
	kinds, listed := fork.Namespaces(), 0
	var user *fork.Join
	for i, n := range linux.Namespaces {
		of := slices.IndexFunc(kinds, func(k fork.Namespace) bool { return k.Name == string(n.Type) })
		if of < 0 {
			return serve.Unsupported("linux.namespaces[%d].type: %q is not supported", i, n.Type)
		}
		k := kinds[of]
		if listed&k.Flag != 0 {
			return fmt.Errorf("linux.namespaces[%d].type: %q is listed twice", i, n.Type)
		}
		listed |= k.Flag
		if n.Path == "" {
			if k.Flag != unix.CLONE_NEWCGROUP { // init makes its cgroup namespace itself, when it is in its cgroup
				p.New |= uintptr(k.Flag)
			}
			continue
		}
		j, err := openNamespace(k, n.Path)
		if err != nil {
			return err
		}
		if k.Flag == unix.CLONE_NEWNS {
			if err := notHosts(j.File); err != nil {
				closeJoins([]fork.Join{*j})
				return serve.Unsupported("linux.namespaces[%d].path: %s: %v", i, n.Path, err)
			}
		}
		if k.Flag == unix.CLONE_NEWUSER {
			user = j
			continue
		}
		p.Joins = append(p.Joins, *j)
	}
	// Join the user namespace last, because joining namespaces of the host needs the host's
	// rights.
	if user != nil {
		p.Joins = append(p.Joins, *user)
	}
	p.Clocks = clocks(linux.TimeOffsets)
	return mapIDs(p, linux, listed)
}

// clocks returns offsets in the kernel's format. Package container refuses offsets without
// a new time namespace.
func clocks(offsets map[string]specs.LinuxTimeOffset) []byte {
	var text []byte
	for name, o := range offsets {
		text = fmt.Appendf(text, "%s %d %d\n", name, o.Secs, o.Nanosecs)
	}
	return text
}

// mapIDs sets the id maps of a new user namespace. A joined user namespace keeps its own.
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

func openNamespace(k fork.Namespace, path string) (*fork.Join, error) {
	what := fmt.Sprintf("%s namespace %s", k.Name, path)
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", what, errors.Unwrap(err))
	}
	flag, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || flag != k.Flag {
		f.Close()
		return nil, fmt.Errorf("joining %s: it is not a %s namespace", what, k.Name)
	}
	return &fork.Join{What: what, File: f, Flags: flag}, nil
}

// notHosts returns an error if a mount namespace is that of this process or of the host's
// first process. If an app joins a mount namespace, its root becomes the root of all
// processes there.
func notHosts(namespace *os.File) error {
	joined, err := namespace.Stat()
	if err != nil {
		return err
	}
	for _, path := range []string{"/proc/self/ns/mnt", "/proc/1/ns/mnt"} {
		host, err := os.Stat(path)
		if errors.Is(err, fs.ErrPermission) {
			continue // this process has no rights in that namespace, so it cannot join it
		}
		if err != nil {
			return err
		}
		if os.SameFile(host, joined) {
			return errors.New("it is the host's mount namespace")
		}
	}
	return nil
}

func closeJoins(joins []fork.Join) {
	for _, j := range joins {
		j.File.Close()
	}
}

// apart returns the flags of the namespaces that the first process of an app will not share with
// this one: those that are made, and those of others that it joins.
func apart(p *fork.Process, linux *specs.Linux) (int, error) {
	flags := int(p.New)
	for _, n := range linux.Namespaces {
		if n.Type == specs.CgroupNamespace && n.Path == "" {
			flags |= unix.CLONE_NEWCGROUP // enlist leaves it to init
		}
	}
	joined, err := foreign(func(k fork.Namespace) (fs.FileInfo, error) {
		i := slices.IndexFunc(p.Joins, func(j fork.Join) bool { return j.Flags == k.Flag })
		if i < 0 {
			return nil, fs.ErrNotExist
		}
		return p.Joins[i].File.Stat()
	})
	return flags | joined, err
}

// differing returns what apart returns, for a process that a spawner has made.
func differing(pid int) (int, error) {
	return foreign(func(k fork.Namespace) (fs.FileInfo, error) {
		return os.Stat(fmt.Sprintf("/proc/%d/ns/%s", pid, k.File))
	})
}

// foreign returns the flags of the namespaces that are not this process's. stat returns
// fs.ErrNotExist for a type that is not to be looked at, or that this kernel lacks.
func foreign(stat func(fork.Namespace) (fs.FileInfo, error)) (int, error) {
	flags := 0
	for _, k := range fork.Namespaces() {
		theirs, err := stat(k)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		ours, oursErr := os.Stat("/proc/self/ns/" + k.File)
		if err := cmp.Or(err, oursErr); err != nil {
			return 0, fmt.Errorf("look at a namespace: %w", proc.ExplainUntraceable(err))
		}
		if !os.SameFile(theirs, ours) {
			flags |= k.Flag
		}
	}
	return flags, nil
}
