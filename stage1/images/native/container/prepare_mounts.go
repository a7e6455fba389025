package container

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// mountPlanner translates the mounts and devices of one app.
type mountPlanner struct {
	prepared *Prepared
	config   *config
	spec     *specs.Spec
	request  *abi.Request
	options  *optionParser
	shared   bool // mounts may propagate to the host
	cgroup2  bool // the host has only version 2
	idmaps   []idmap
	mounts   proc.MountCopier
	// hostCgroup2 returns the options of the host's cgroup2.
	hostCgroup2 func() (string, error)
}

// idmap is a user namespace with a pair of mappings.
type idmap struct {
	uids, gids []specs.LinuxIDMapping
	ns         *os.File
}

// filesystem plans the app's root, mounts and devices.
func (p *Prepared) filesystem(c *config, spec *specs.Spec, r *abi.Request) error {
	m := &mountPlanner{prepared: p, config: c, spec: spec, request: r, options: newOptionParser(), hostCgroup2: hostCgroup2}
	defer m.close()
	if c.UserNamespace {
		return amongLockedMounts(m.plan)
	}
	return m.plan()
}

func (m *mountPlanner) plan() error {
	if err := m.root(); err != nil {
		return err
	}
	m.cgroup2 = m.request.Cgroup != nil && m.request.Cgroup.Version == 2
	for i, s := range m.spec.Mounts {
		planned, err := m.mount(s)
		if err != nil {
			var refused *serve.Failure
			if errors.As(err, &refused) {
				return refuse(fmt.Sprintf("mounts[%d]", i), "%v", err)
			}
			return fmt.Errorf("mount %s on %s: %w", describe(s), s.Destination, err)
		}
		m.config.Mounts = append(m.config.Mounts, planned)
	}
	if !m.config.Rootfs.Populate {
		return nil
	}
	return m.devices()
}

func describe(m specs.Mount) string {
	if m.Source != "" {
		return m.Source
	}
	return m.Type
}

func (m *mountPlanner) close() {
	for _, i := range m.idmaps {
		i.ns.Close()
	}
}

func (m *mountPlanner) root() error {
	root := &rootfs{Path: path.Clean(m.request.Rootfs), Populate: true}
	if m.spec.Root != nil {
		root.Readonly = m.spec.Root.Readonly
	}
	if o := m.request.Options; o != nil {
		root.NoPivotRoot = o.NoPivotRoot
	}
	if p := m.spec.Linux.RootfsPropagation; p != "" {
		flag, ok := m.options.propagation[p]
		if !ok {
			return refuse("linux.rootfsPropagation", "%q is not supported", p)
		}
		root.Propagation = flag
	}
	// Mounts in a user namespace must not propagate to the host, even if the spec asks
	// for it.
	m.shared = root.Propagation&unix.MS_SHARED != 0 && !m.config.UserNamespace
	m.config.Rootfs = root
	i := slices.IndexFunc(m.spec.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.MountNamespace })
	if root.Chroot = i < 0; root.Chroot || m.spec.Linux.Namespaces[i].Path == "" {
		return nil
	}
	return m.openRoot(root)
}

// openRoot opens the app's root, for an app that joins a mount namespace: the root may not
// be visible there.
func (m *mountPlanner) openRoot(root *rootfs) error {
	tree, err := m.mounts.Copy(root.Path, true)
	if err != nil {
		return fmt.Errorf("open rootfs %s: %w", root.Path, err)
	}
	root.File = m.prepared.give(tree)
	if m.shared {
		return nil
	}
	return doing("keep mounts from propagating to the host", setAttr(int(tree.Fd()), true, unix.MountAttr{Propagation: unix.MS_SLAVE}))
}

func (m *mountPlanner) mount(s specs.Mount) (mount, error) {
	o := m.options.parse(s.Options)
	if !path.IsAbs(s.Destination) {
		// The OCI spec requires an absolute path; runc has always accepted relative ones.
		s.Destination = "/" + s.Destination
	}
	planned := mount{
		Destination: path.Clean(s.Destination),
		Type:        s.Type,
		Source:      s.Source,
		Flags:       o.flags,
		Data:        addData("", o.data...),
		Propagation: o.propagation,
		CopyUp:      o.copyUp,
		Recursive:   unix.MountAttr{Attr_set: o.recSet, Attr_clr: o.recClear},
	}
	if planned.Destination == "/" {
		return planned, refuse("destination", "nothing can be mounted on /")
	}
	if o.flags&unix.MS_BIND == 0 && (s.Type == "bind" || s.Type == "rbind") {
		o.flags |= unix.MS_BIND
		if s.Type == "rbind" {
			o.flags |= unix.MS_REC
		}
		planned.Flags = o.flags // a remount without MS_BIND would change the host's file system
	}
	if planned.Destination == "/dev" && o.flags&unix.MS_RDONLY != 0 {
		// The device nodes and the console still have to be made in it.
		o.flags &^= unix.MS_RDONLY
		planned.Flags, planned.ReadonlyEnd = o.flags, true
	}
	if o.flags&unix.MS_BIND != 0 && o.flags&unix.MS_REMOUNT == 0 {
		return planned, m.bind(&planned, s, &o)
	}
	return planned, m.filesystemMount(&planned, s, &o)
}

// bind opens the source of a bind mount, with its flags set.
func (m *mountPlanner) bind(planned *mount, s specs.Mount, o *mountOptions) error {
	if o.copyUp {
		return refuse("options", "tmpcopyup is for tmpfs")
	}
	if len(o.data) > 0 {
		return refuse("options", "%q is not an option of a bind mount", o.data[0])
	}
	if planned.Destination == "/dev" {
		m.config.Rootfs.Populate = false
	}
	source := s.Source
	if !path.IsAbs(source) {
		source = path.Join(m.request.Bundle, source)
	}
	recursive := o.flags&unix.MS_REC != 0
	tree, err := m.mounts.Copy(source, recursive)
	if errors.Is(err, unix.EINVAL) && m.config.UserNamespace && !recursive {
		return fmt.Errorf("open the source: %w: a mount is below it, and in a user namespace only rbind may bind it, which binds both", err)
	}
	if err != nil {
		return fmt.Errorf("open the source: %w", err)
	}
	planned.Type, planned.Flags, planned.Data = "bind", 0, ""
	planned.File = m.prepared.give(tree)
	if planned.OnFile, err = isFile(tree); err != nil {
		return err
	}
	fd := int(tree.Fd())
	if !m.shared {
		// A copy of a shared mount is a peer of the original, so mounts that the app makes
		// in it would appear on the host. A slave only receives mounts.
		if err := setAttr(fd, true, unix.MountAttr{Propagation: unix.MS_SLAVE}); err != nil {
			return fmt.Errorf("keep mounts from propagating to the host: %w", err)
		}
	}
	if err := m.mapIDs(fd, s, o); err != nil {
		return err
	}
	return setBindAttr(fd, o)
}

func setBindAttr(fd int, o *mountOptions) error {
	attr, gentle, changes := o.bindAttr()
	if !changes {
		return nil
	}
	err := setAttr(fd, false, attr)
	if errors.Is(err, unix.EPERM) {
		err = setAttr(fd, false, gentle)
	}
	if err != nil {
		return fmt.Errorf("set the mount's flags: %w", explainLocked(fd, err))
	}
	return nil
}

func isFile(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	return !info.IsDir(), nil
}

// mapIDs makes a mount id-mapped, if the spec asks for that.
func (m *mountPlanner) mapIDs(fd int, s specs.Mount, o *mountOptions) error {
	if !o.idmap && len(s.UIDMappings) == 0 && len(s.GIDMappings) == 0 {
		return nil
	}
	if (len(s.UIDMappings) == 0) != (len(s.GIDMappings) == 0) {
		return errors.New("uidMappings and gidMappings go together")
	}
	ns, err := m.mappings(s)
	if err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())}
	if err := setAttr(fd, o.ridmap, attr); err != nil {
		return fmt.Errorf("map ids (the filesystem may not be able to): %w", err)
	}
	return nil
}

// mappings returns a user namespace with the mount's mappings or, if the mount has none,
// with the app's.
func (m *mountPlanner) mappings(s specs.Mount) (*os.File, error) {
	uids, gids := s.UIDMappings, s.GIDMappings
	if len(uids) == 0 {
		uids, gids = m.spec.Linux.UIDMappings, m.spec.Linux.GIDMappings
	}
	for _, i := range m.idmaps {
		if slices.Equal(i.uids, uids) && slices.Equal(i.gids, gids) {
			return i.ns, nil
		}
	}
	var ns *os.File
	var err error
	if len(uids) > 0 && len(gids) > 0 {
		ns, err = userNamespace(uids, gids)
	} else {
		ns, err = m.joinedUserNamespace()
	}
	if err != nil {
		return nil, err
	}
	m.idmaps = append(m.idmaps, idmap{uids, gids, ns})
	return ns, nil
}

func (m *mountPlanner) joinedUserNamespace() (*os.File, error) {
	for _, n := range m.spec.Linux.Namespaces {
		if n.Type == specs.UserNamespace && n.Path != "" {
			return os.Open(n.Path)
		}
	}
	return nil, errors.New("an id-mapped mount needs mappings, its own or the app's")
}

// filesystemMount completes the plan of a mount that is no bind mount.
func (m *mountPlanner) filesystemMount(planned *mount, s specs.Mount, o *mountOptions) error {
	if o.idmap || len(s.UIDMappings) > 0 || len(s.GIDMappings) > 0 {
		return refuse("uidMappings", "only bind mounts can be id-mapped")
	}
	if o.copyUp && s.Type != "tmpfs" {
		return refuse("options", "tmpcopyup is for tmpfs")
	}
	if s.Type == "" && o.flags&unix.MS_REMOUNT == 0 {
		return errors.New("the mount has no type")
	}
	switch s.Type {
	case "cgroup":
		return m.cgroup(planned)
	case "cgroup2":
		if err := m.keepCgroup2(planned); err != nil {
			return err
		}
	case "proc", "sysfs":
	case "tmpfs":
		// Make it read-only later, because mount points and copied files still have to be
		// made in it.
		if o.flags&unix.MS_RDONLY != 0 && o.flags&unix.MS_REMOUNT == 0 {
			planned.Flags &^= unix.MS_RDONLY
			planned.ReadonlyEnd = true
		}
		fallthrough
	default:
		if !hasData(planned.Data, "context") && s.Type != "mqueue" {
			planned.Data = addData(planned.Data, contextOption(m.spec.Linux.MountLabel))
		}
	}
	if strings.ContainsRune(planned.Data, 0) {
		return errors.New("an option has a null byte")
	}
	return nil
}
