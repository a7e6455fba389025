package older

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// spec says an app in the words of OCI, but for its volumes.
func (a *runtimeApp) spec(o *Options, root string) (*specs.Spec, error) {
	uid, err := identity(root, "etc/passwd", a.App.User)
	if err != nil {
		return nil, fmt.Errorf("user: %w", err)
	}
	gid, err := identity(root, "etc/group", a.App.Group)
	if err != nil {
		return nil, fmt.Errorf("group: %w", err)
	}
	s := &specs.Spec{
		Version:  "1.0.2",
		Root:     &specs.Root{Path: root, Readonly: a.ReadOnly},
		Hostname: o.Hostname,
		Process: &specs.Process{
			Args: a.App.Exec, Env: a.App.env(a.Name), Cwd: a.App.Directory,
			User: specs.User{UID: uid, GID: gid, AdditionalGids: a.App.Groups},
		},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.UTSNamespace},
		}},
	}
	if s.Process.Cwd == "" {
		s.Process.Cwd = "/"
	}
	if !o.ParentIPC {
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.IPCNamespace})
	}
	if o.PrivateNetwork {
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	}
	files(s, o)
	if err := a.App.isolate(s, o); err != nil {
		return nil, err
	}
	return s, nil
}

// files are those of the kernel that every app has.
func files(s *specs.Spec, o *Options) {
	s.Mounts = []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
	}
	if o.AnyPath {
		return
	}
	s.Linux.MaskedPaths = []string{"/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug", "/sys/firmware"}
	s.Linux.ReadonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

// env is an app's environment as rkt completes it.
func (a *app) env(name string) []string {
	var env []string
	has := map[string]bool{}
	for _, v := range append(a.Environment, variable{"AC_APP_NAME", name}) {
		env = append(env, v.Name+"="+v.Value)
		has[v.Name] = true
	}
	for _, kv := range []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SHELL=/bin/sh", "USER=root", "LOGNAME=root", "HOME=/root",
	} {
		if key, _, _ := strings.Cut(kv, "="); !has[key] {
			env = append(env, kv)
		}
	}
	return env
}

// identity returns a number, that of a name in a file of the root, or the owner of a
// path there.
func identity(root, file, name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	dir, err := os.OpenRoot(root)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	if filepath.IsAbs(name) {
		return owner(dir, name, file == "etc/group")
	}
	f, err := dir.Open(file)
	if err != nil {
		return 0, fmt.Errorf("%s is no number, and %w", name, err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if part := strings.Split(lines.Text(), ":"); len(part) > 2 && part[0] == name {
			n, err := strconv.ParseUint(part[2], 10, 32)
			return uint32(n), err
		}
	}
	return 0, fmt.Errorf("%s is neither a number nor in /%s", name, file)
}

func owner(root *os.Root, path string, group bool) (uint32, error) {
	f, err := root.Open(strings.TrimLeft(path, "/"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	if group {
		return st.Gid, nil
	}
	return st.Uid, nil
}

// mount adds what a volume shows.
func (m *manifest) mount(s *specs.Spec, pod string, of mount) error {
	v, err := m.volume(of)
	if err != nil {
		return err
	}
	source := v.Source
	if v.Kind == "empty" {
		source = filepath.Join(pod, "sharedVolumes", v.Name)
		if err := v.make(source); err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	options := []string{"rbind"}
	if v.Recursive != nil && !*v.Recursive {
		options[0] = "bind"
	}
	if v.ReadOnly {
		options = append(options, "ro")
	}
	s.Mounts = append(s.Mounts, specs.Mount{Destination: of.Path, Type: "bind", Source: source, Options: options})
	return nil
}

// make makes the directory of an empty volume, which apps may share.
func (v *volume) make(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mode := uint64(0o755)
	if v.Mode != "" {
		if mode, err = strconv.ParseUint(v.Mode, 8, 32); err != nil {
			return fmt.Errorf("mode: %w", err)
		}
	}
	return errors.Join(os.Chown(dir, v.UID, v.GID), unix.Chmod(dir, uint32(mode)))
}
