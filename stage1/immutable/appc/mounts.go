package appc

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Own reports whether a stage1 of rkt makes a mount for every app by itself.
func Own(m specs.Mount) bool {
	switch filepath.Clean(m.Destination) {
	case "/proc":
		return m.Type == "proc"
	case "/sys":
		return m.Type == "sysfs"
	case "/sys/fs/cgroup":
		return m.Type == "cgroup" || m.Type == "cgroup2"
	case "/dev", "/dev/shm":
		return m.Type == "tmpfs"
	case "/dev/pts":
		return m.Type == "devpts"
	case "/dev/mqueue":
		return m.Type == "mqueue"
	}
	return false
}

// Bind reports whether a mount is a bind mount, and whether it includes the mounts below.
func Bind(m specs.Mount) (bind, recursive bool) {
	recursive = slices.Contains(m.Options, "rbind")
	return m.Type == "bind" || recursive || slices.Contains(m.Options, "bind"), recursive
}

func (t *translator) mounts() error {
	for i, m := range t.spec.Mounts {
		var err error
		switch {
		case Own(m):
			err = t.own(i, m)
		case !t.Mounted(m):
			err = t.mount(i, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// own refuses options of a mount that the stage1 makes itself, such as a size, except the
// options that clients usually give.
func (t *translator) own(i int, m specs.Mount) error {
	left := without(m.Options, usual(filepath.Clean(m.Destination))...)
	if len(left) == 0 {
		return nil
	}
	return t.unsaid("/mounts/*/options", fmt.Sprintf("/mounts/%d/options", i),
		fmt.Sprintf("the stage1 makes %s itself, whatever %s says", m.Destination, strings.Join(left, ",")))
}

// usual returns the options that containerd and similar clients usually give for these
// mounts.
func usual(destination string) []string {
	switch destination {
	case "/dev":
		return []string{"nosuid", "strictatime", "mode=755", "size=65536k"}
	case "/dev/pts":
		return []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}
	case "/dev/shm":
		return []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}
	case "/sys", "/sys/fs/cgroup":
		return []string{"nosuid", "noexec", "nodev", "relatime", "ro"}
	}
	return []string{"nosuid", "noexec", "nodev"}
}

// mount adds a volume to the pod, and its mount to the app.
func (t *translator) mount(i int, m specs.Mount) error {
	at := fmt.Sprintf("/mounts/%d", i)
	name, err := types.NewACName(fmt.Sprintf("%s-mount-%d", t.Name, i))
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	v := types.Volume{Name: *name, Kind: "host"}
	bind, recursive := Bind(m)
	options := m.Options
	switch {
	case bind:
		v.Source = m.Source
		if !filepath.IsAbs(v.Source) {
			v.Source = filepath.Join(t.Bundle, v.Source)
		}
		readOnly := slices.Contains(options, "ro")
		v.ReadOnly, v.Recursive = &readOnly, &recursive
		options = without(options, "bind", "rbind", "ro", "rw", "private", "rprivate")
	case m.Type == "tmpfs":
		if options, err = emptyVolume(&v, options); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	default:
		return t.unsaid("/mounts/*/type", at+"/type", fmt.Sprintf("%s on %s is neither a part of the host nor an empty volume", m.Type, m.Destination))
	}
	if len(options) > 0 {
		if err := t.unsaid("/mounts/*/options", at+"/options", fmt.Sprintf("volumes do not have %s", strings.Join(options, ","))); err != nil {
			return err
		}
	}
	t.app.Volumes = append(t.app.Volumes, v)
	t.app.Mounts = append(t.app.Mounts, schema.Mount{Volume: *name, Path: m.Destination})
	return nil
}

// emptyVolume makes a volume that resembles a tmpfs, and returns the options that it cannot
// have, such as a size.
func emptyVolume(v *types.Volume, options []string) (left []string, err error) {
	v.Kind = "empty"
	mode, uid, gid := "0777", 0, 0
	for _, o := range options {
		switch key, value, _ := strings.Cut(o, "="); key {
		case "mode":
			mode = value
		case "uid":
			_, err = fmt.Sscan(value, &uid)
		case "gid":
			_, err = fmt.Sscan(value, &gid)
		case "rw":
		default:
			left = append(left, o)
		}
		if err != nil {
			return nil, fmt.Errorf("option %s: %w", o, err)
		}
	}
	v.Mode, v.UID, v.GID = &mode, &uid, &gid
	return left, nil
}

func without(options []string, those ...string) []string {
	return slices.DeleteFunc(slices.Clone(options), func(o string) bool { return slices.Contains(those, o) })
}
