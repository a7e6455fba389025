package local

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Image is the root file system of an app, and how its program is started.
type Image struct {
	// Layers are directories, the uppermost first. They are not changed.
	Layers []string
	Args   []string
	Env    []string
	Cwd    string
}

// Volume is a directory or file of the host that an app sees.
type Volume struct {
	Source   string // absolute path on the host
	Target   string // absolute path in the app
	ReadOnly bool
}

// ParseVolume reads SOURCE:TARGET or SOURCE:TARGET:ro.
func ParseVolume(s string) (Volume, error) {
	f := strings.Split(s, ":")
	v := Volume{ReadOnly: len(f) == 3 && f[2] == "ro"}
	if len(f) < 2 || len(f) > 3 || len(f) == 3 && f[2] != "ro" && f[2] != "rw" || !filepath.IsAbs(f[0]) || !filepath.IsAbs(f[1]) {
		return v, fmt.Errorf("volume %q: it is SOURCE:TARGET or SOURCE:TARGET:ro, with absolute paths: %w", s, errdefs.ErrInvalidArgument)
	}
	v.Source, v.Target = filepath.Clean(f[0]), filepath.Clean(f[1])
	return v, nil
}

// check refuses a request that can be seen to be wrong.
func (c *AppConfig) check() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("app %s: %s: %w", c.Name, fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
	}
	if len(c.Args) == 0 && len(c.Image.Args) == 0 {
		return invalid("no command: name one after --")
	}
	if len(c.Layers) == 0 {
		return invalid("no root file system")
	}
	for _, l := range c.Layers {
		if !filepath.IsAbs(l) || strings.ContainsAny(l, `:,\`) { // overlayfs gives them a meaning
			return invalid("root file system %q: an absolute path without the characters : , \\", l)
		}
	}
	for _, e := range c.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			return invalid("environment %q: it is NAME=VALUE", e)
		}
	}
	if c.Cwd != "" && !filepath.IsAbs(c.Cwd) {
		return invalid("working directory %q is not absolute", c.Cwd)
	}
	return nil
}

// defaultPath is the PATH of an app whose image has none.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// capabilities are those that containerd gives a container by default.
var capabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
	"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
}

// spec returns the OCI runtime spec of an app.
func (a *app) spec(c AppConfig) (*specs.Spec, error) {
	s := &specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: "rootfs"},
		Process: &specs.Process{
			Terminal:        c.Terminal,
			Args:            c.Args,
			Env:             environment(c.Image.Env, c.Env, c.Terminal),
			Cwd:             c.Cwd,
			NoNewPrivileges: true,
			Capabilities:    &specs.LinuxCapabilities{Bounding: capabilities, Effective: capabilities, Permitted: capabilities},
			Rlimits:         []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: 1024, Soft: 1024}},
		},
		Mounts: slices.Clone(mounts),
		Linux: &specs.Linux{
			CgroupsPath: filepath.Join(a.pod.record.Cgroup, a.name),
			Namespaces:  a.namespaces(),
			MaskedPaths: []string{
				"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
				"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
			},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
			Resources:     &specs.LinuxResources{Devices: devices()},
		},
	}
	if len(s.Process.Args) == 0 {
		s.Process.Args = c.Image.Args
	}
	if s.Process.Cwd == "" {
		s.Process.Cwd = c.Image.Cwd
	}
	if s.Process.Cwd == "" {
		s.Process.Cwd = "/"
	}
	for _, v := range c.Volumes {
		options := []string{"rbind", "rprivate", "rw"}
		if v.ReadOnly {
			options[2] = "ro"
		}
		s.Mounts = append(s.Mounts, specs.Mount{Type: "bind", Source: v.Source, Destination: v.Target, Options: options})
	}
	return s, nil
}

// environment merges an image's variables with those of a request, which override them.
func environment(image, asked []string, terminal bool) []string {
	all := map[string]string{}
	order := []string{defaultPath}
	if terminal {
		order = append(order, "TERM=xterm")
	}
	var names []string
	for _, e := range slices.Concat(order, image, asked) {
		name, _, _ := strings.Cut(e, "=")
		if _, ok := all[name]; !ok {
			names = append(names, name)
		}
		all[name] = e
	}
	env := make([]string, 0, len(all))
	for _, n := range names {
		env = append(env, all[n])
	}
	return env
}

// namespaces lists those of the pod, which its holder keeps, and the app's own.
func (a *app) namespaces() []specs.LinuxNamespace {
	of := func(file string) string { return fmt.Sprintf("/proc/%d/ns/%s", a.pod.record.Holder, file) }
	list := []specs.LinuxNamespace{
		{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.CgroupNamespace},
		{Type: specs.IPCNamespace, Path: of("ipc")},
	}
	if a.pod.record.Network != NetworkHost {
		list = append(list, specs.LinuxNamespace{Type: specs.UTSNamespace, Path: of("uts")},
			specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: of("net")})
	}
	return list
}

var mounts = []specs.Mount{
	{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
	{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
	{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
	{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
	{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
	{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
	{Destination: "/run", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
}

// devices are the rules that let an app use the devices that every container has.
func devices() []specs.LinuxDeviceCgroup {
	rules := []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}
	numbers := map[int64][]int64{1: {3, 5, 7, 8, 9}, 5: {0, 2}}
	for _, major := range slices.Sorted(maps.Keys(numbers)) {
		for _, minor := range numbers[major] {
			rules = append(rules, specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &major, Minor: &minor, Access: "rwm"})
		}
	}
	pts := int64(136)
	return append(rules, specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &pts, Access: "rwm"})
}
