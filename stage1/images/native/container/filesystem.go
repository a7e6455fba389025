package container

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// parameter is one option of a filesystem as fsconfig(2) takes it: a flag if it
// has no value.
type parameter struct {
	key, value string
	flag       bool
}

// newFilesystem makes the filesystem of an entry as a detached mount, which no path of the
// app leads to. The caller can fill it and attach it through the descriptor.
func (a *appInit) newFilesystem(m *mount) (int, error) {
	var fd int
	var err error
	if parameters, ok := m.parameters(); ok {
		fd, err = fsmount(m.Type, m.Source, parameters, attributes(m.Flags))
	} else {
		fd, err = a.mountAside(m)
	}
	if m.Type == "cgroup2" && m.File != 0 && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EBUSY)) {
		// The cgroup namespace is not our user namespace's.
		return m.File, nil
	}
	if errors.Is(err, unix.ENODEV) {
		return -1, fmt.Errorf("this kernel knows no filesystem %q: %w", m.Type, err)
	}
	return fd, err
}

// fsmount makes a filesystem and a mount of it that is attached nowhere.
func fsmount(fstype, source string, parameters []parameter, attr uint64) (int, error) {
	fs, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	for _, p := range append(parameters, parameter{key: "source", value: source}) {
		if p.flag {
			err = unix.FsconfigSetFlag(fs, p.key)
		} else {
			err = unix.FsconfigSetString(fs, p.key, p.value)
		}
		if err != nil {
			return -1, explainFilesystem(fs, fmt.Errorf("option %s: %w", p.key, err))
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, explainFilesystem(fs, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, int(attr))
	if err != nil {
		return -1, explainFilesystem(fs, err)
	}
	return fd, nil
}

// explainFilesystem adds the kernel's message to an error. The kernel has one for most
// options that a filesystem does not accept.
func explainFilesystem(fs int, err error) error {
	var said []string
	buf := make([]byte, 1024)
	for {
		n, e := unix.Read(fs, buf)
		if e != nil || n == 0 {
			break
		}
		// The first letter is a severity: error, warning or information.
		if text, ok := strings.CutPrefix(string(buf[:n]), "e "); ok {
			said = append(said, strings.TrimSpace(text))
		}
	}
	if len(said) == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", strings.Join(said, "; "), err)
}

// parameters returns the flags and options of an entry for fsconfig. ok is false if
// fsconfig does not accept all that mount(2) accepts: strings of 256 bytes or more, escaped
// strings, and flags that it has no name for.
func (m *mount) parameters() (p []parameter, ok bool) {
	const longest = 255
	rest := m.Flags &^ (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NODIRATIME | unix.MS_NOSYMFOLLOW | atimeFlags)
	for _, w := range []struct {
		flag uintptr
		word string
	}{
		{unix.MS_RDONLY, "ro"},
		{unix.MS_SYNCHRONOUS, "sync"},
		{unix.MS_DIRSYNC, "dirsync"},
		{unix.MS_LAZYTIME, "lazytime"},
		{unix.MS_MANDLOCK, "mand"},
	} {
		if rest&w.flag != 0 {
			p = append(p, parameter{key: w.word, flag: true})
			rest &^= w.flag
		}
	}
	// A type such as fuse.sshfs has a second part, which mount(2) cuts off. In
	// the data of cifs two commas stand for one.
	if rest != 0 || len(m.Source) > longest || strings.Contains(m.Type, ".") ||
		strings.Contains(m.Data, `\`) || strings.Contains(m.Data, ",,") {
		return nil, false
	}
	for _, option := range splitData(m.Data) {
		key, value, valued := strings.Cut(option, "=")
		if strings.HasSuffix(key, "context") {
			value = strings.ReplaceAll(value, `"`, "") // as SELinux does with the data of mount(2)
		}
		if len(key) > longest || len(value) > longest || strings.Contains(value, `"`) {
			return nil, false
		}
		p = append(p, parameter{key, value, !valued})
	}
	return p, true
}

// splitData returns the options that addData has joined. A comma between quotes is
// part of an option.
func splitData(data string) (options []string) {
	quoted, start := false, 0
	for i := 0; i <= len(data); i++ {
		switch {
		case i < len(data) && data[i] == '"':
			quoted = !quoted
		case i == len(data) || data[i] == ',' && !quoted:
			if i > start {
				options = append(options, data[start:i])
			}
			start = i + 1
		}
	}
	return options
}

// aside reports whether an entry's filesystem has to be mounted with mount(2).
func (m *mount) aside() bool {
	if m.Flags&unix.MS_REMOUNT != 0 || m.Type == "bind" || m.Type == "cgroup" {
		return false
	}
	_, ok := m.parameters()
	return !ok
}

// openAside makes the directory for mountAside: on a tmpfs of its own, under the
// mount that becomes the app's root. No path leads there, and mounts in the tmpfs do not
// propagate.
func (a *appInit) openAside() error {
	fd, err := fsmount("tmpfs", "tmpfs", []parameter{{key: "mode", value: "700"}}, 0)
	if err != nil {
		return fmt.Errorf("make a directory to mount in: %w", err)
	}
	target, err := unix.Open(a.Rootfs.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open rootfs %s: %w", a.Rootfs.Path, err)
	}
	defer unix.Close(target)
	if err := attach(fd, target); err != nil {
		return fmt.Errorf("attach a directory to mount in to %s: %w", a.Rootfs.Path, err)
	}
	if err := unix.Mkdirat(fd, asideName, 0o700); err != nil {
		return fmt.Errorf("make a directory to mount in: %w", err)
	}
	a.asideDir = fd
	return nil
}

const asideName = "mount"

// mountAside does the same as fsmount with mount(2). The mount is attached in openAside's
// directory, until attach moves it; then the directory is free for the next one.
func (a *appInit) mountAside(m *mount) (int, error) {
	if err := unix.Mount(m.Source, procPath(a.asideDir)+"/"+asideName, m.Type, m.Flags, m.Data); err != nil {
		return -1, err
	}
	return unix.Openat(a.asideDir, asideName, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}
