package container

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// parameter is one option of a filesystem for fsconfig(2). An option without a value is a
// flag.
type parameter struct {
	key, value string
	flag       bool
}

// newFilesystem makes the filesystem of an entry as a detached mount. No path of the app
// leads to it. The caller can fill it and attach it through the descriptor.
func (a *builder) newFilesystem(m *mount) (int, error) {
	var fd int
	var err error
	parameters, ok := m.parameters()
	switch {
	case m.Type == "proc" && m.File != 0: // the app's first process has opened it
		fd, err = mountOpened(m.File, m.Source, parameters, attributes(m.Flags))
	case ok:
		fd, err = fsmount(m.Type, m.Source, parameters, attributes(m.Flags))
	default:
		fd, err = a.mountAside(m)
	}
	if m.Type == "cgroup2" && m.File != 0 && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EBUSY)) {
		// The cgroup namespace does not belong to our user namespace.
		return m.File, nil
	}
	if errors.Is(err, unix.ENODEV) {
		return -1, fmt.Errorf("this kernel knows no filesystem %q: %w", m.Type, err)
	}
	if err != nil {
		return -1, err
	}
	a.keep(fd)
	return fd, nil
}

// fsmount makes a filesystem and a detached mount of it.
func fsmount(fstype, source string, parameters []parameter, attr uint64) (int, error) {
	fs, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	return mountOpened(fs, source, parameters, attr)
}

// mountOpened does the work of fsmount with a filesystem that fsopen(2) has opened.
func mountOpened(fs int, source string, parameters []parameter, attr uint64) (int, error) {
	for _, p := range append(parameters, parameter{key: "source", value: source}) {
		var err error
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

// explainFilesystem adds the kernel's message to an error. For most options that a
// filesystem does not accept, the kernel has a message.
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

// parameters returns the flags and options of an entry for fsconfig(2). ok is false if the
// entry needs mount(2), because it has something that fsconfig(2) does not accept: strings
// of 256 bytes or more, escaped strings, and flags for which it has no name.
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
			if w.flag != unix.MS_RDONLY || !slices.Contains(reconfigured, m.Type) { // the mount itself is read-only all the same
				p = append(p, parameter{key: w.word, flag: true})
			}
			rest &^= w.flag
		}
	}
	// mount(2) cuts off the second part of a type such as fuse.sshfs. In the data of cifs
	// two commas stand for one.
	if rest != 0 || len(m.Source) > longest || strings.Contains(m.Type, ".") ||
		strings.Contains(m.Data, `\`) || strings.Contains(m.Data, ",,") {
		return nil, false
	}
	for _, option := range splitData(m.Data) {
		key, value, valued := strings.Cut(option, "=")
		if strings.HasSuffix(key, "context") {
			value = strings.ReplaceAll(value, `"`, "") // mount(2) removes the quotes of SELinux contexts, too
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

// aside reports whether the filesystem of an entry has to be made with mount(2).
func (m *mount) aside() bool {
	if m.Flags&unix.MS_REMOUNT != 0 || m.Type == "bind" || m.Type == "cgroup" {
		return false
	}
	_, ok := m.parameters()
	return !ok
}

// openAside makes the directory for mountAside, on a tmpfs of its own. The tmpfs is covered
// by the mount that becomes the app's root, so no path leads to it, and mounts in it do not
// propagate.
func (a *builder) openAside() error {
	fd, err := fsmount("tmpfs", "tmpfs", []parameter{{key: "mode", value: "700"}}, 0)
	if err != nil {
		return fmt.Errorf("make a directory to mount in: %w", err)
	}
	a.keep(fd)
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

// mountAside does the work of fsmount with mount(2). It attaches the mount to the directory
// of openAside. When attach has moved the mount, the directory is free for the next one.
func (a *builder) mountAside(m *mount) (int, error) {
	if err := unix.Mount(m.Source, procPath(a.asideDir)+"/"+asideName, m.Type, m.Flags, m.Data); err != nil {
		return -1, err
	}
	return unix.Openat(a.asideDir, asideName, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}
