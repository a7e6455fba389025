package container

import (
	"fmt"
	"os"
	"path"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// defaultDevices returns the devices that every app gets by the OCI spec.
func defaultDevices() []device {
	node := func(name string, major, minor uint32) device {
		return device{Path: "/dev/" + name, Mode: unix.S_IFCHR | 0o666, Dev: unix.Mkdev(major, minor)}
	}
	return []device{
		node("null", 1, 3), node("zero", 1, 5), node("full", 1, 7),
		node("random", 1, 8), node("urandom", 1, 9), node("tty", 5, 0),
	}
}

// devices plans the nodes. A node of the spec replaces the default node with the same
// path.
func (m *mountPlanner) devices() error {
	var nodes []device
	named := make(map[string]bool)
	for i, d := range m.spec.Linux.Devices {
		node, err := parseDevice(d)
		if err != nil {
			return fmt.Errorf("linux.devices[%d]: %w", i, err)
		}
		if named[node.Path] {
			continue // the first one counts, as with runc
		}
		named[node.Path] = true
		if node.Path != "/dev/ptmx" { // /dev/ptmx always belongs to the app's devpts
			nodes = append(nodes, node)
		}
	}
	for _, d := range defaultDevices() {
		if !named[d.Path] {
			nodes = append(nodes, d)
		}
	}
	if m.config.UserNamespace {
		for i := range nodes {
			if err := m.hostNode(&nodes[i]); err != nil {
				return fmt.Errorf("device %s: %w", nodes[i].Path, err)
			}
		}
	}
	m.config.Devices = nodes
	return nil
}

// hostNode opens the host's node, because a process in a user namespace cannot make
// one.
func (m *mountPlanner) hostNode(d *device) error {
	tree, err := openTree(d.Path)
	if err != nil {
		return err
	}
	d.File = m.prepared.give(tree)
	var st unix.Stat_t
	if err := unix.Fstat(int(tree.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != d.Mode&unix.S_IFMT || st.Rdev != d.Dev {
		return fmt.Errorf("the host has another file there (mode %o, device %d:%d), and in a user namespace it can only be bound", st.Mode, unix.Major(st.Rdev), unix.Minor(st.Rdev))
	}
	return setAttr(int(tree.Fd()), false, unix.MountAttr{Propagation: unix.MS_PRIVATE})
}

func parseDevice(d specs.LinuxDevice) (device, error) {
	types := map[string]uint32{
		"b": unix.S_IFBLK, "c": unix.S_IFCHR, "u": unix.S_IFCHR, "p": unix.S_IFIFO,
	}
	kind, ok := types[d.Type]
	if !ok {
		return device{}, refuse("type", "%q is not b, c, u or p", d.Type)
	}
	if !path.IsAbs(d.Path) {
		return device{}, fmt.Errorf("path %q is not absolute", d.Path)
	}
	node := device{Path: path.Clean(d.Path), Mode: kind | 0o666}
	if kind != unix.S_IFIFO {
		node.Dev = unix.Mkdev(uint32(d.Major), uint32(d.Minor))
	}
	if d.FileMode != nil {
		node.Mode = kind | permissions(*d.FileMode)
	}
	if d.UID != nil {
		node.UID = *d.UID
	}
	if d.GID != nil {
		node.GID = *d.GID
	}
	return node, nil
}

// permissions reads a mode that clients write as a number for chmod(1). The field's Go
// type has another meaning for the higher bits, which no client uses.
func permissions(m os.FileMode) uint32 { return uint32(m) & 0o7777 }
