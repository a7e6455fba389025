package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/podmanifest"
)

// run becomes the app.
func run(args []string) error {
	names, err := parseRun(args)
	if err != nil {
		return err
	}
	lock := descriptor("RKT_LOCK_FD")
	if lock < 0 {
		return errors.New("RKT_LOCK_FD is not set: the pod's directory has to be locked")
	}
	m, a, err := readPod()
	if err != nil {
		return err
	}
	root := filepath.Join(podmanifest.Stage2, a.Name, "rootfs")
	if err := mount(m, a, root, names); err != nil {
		return err
	}
	p, err := programOf(a.App, root)
	if err != nil {
		return err
	}
	if descriptor("RKT_READY_FD") < 0 {
		p.env = a.App.RktEnv(a.Name)
	}
	if err := restrict(isolator(a.App, "os/linux/oom-score-adj"), isolator(a.App, "os/linux/no-new-privileges") == "true"); err != nil {
		return err
	}
	if err := writePIDs(); err != nil {
		return err
	}
	return p.become(root, func() error { return ready(os.Getpid()) })
}

// parseRun parses the arguments of rkt's fly, and ignores those that have no effect in this
// image. It returns the value of --dns-conf-mode.
func parseRun(args []string) (names string, err error) {
	f := flag.NewFlagSet("run", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	for _, name := range []string{"debug", "interactive", "disable-capabilities-restriction", "disable-paths", "disable-seccomp"} {
		f.Bool(name, false, "")
	}
	for _, name := range []string{"mds-token", "local-config", "hostname"} {
		f.String(name, "", "")
	}
	f.StringVar(&names, "dns-conf-mode", "", "")
	net := f.String("net", "host", "")
	if err := f.Parse(args); err != nil {
		return "", misused("run: %v", err)
	}
	if *net != "host" {
		return "", misused("run: --net=%s: an app has the network that it is started in", *net)
	}
	if f.NArg() != 1 {
		return "", misused("run: %d arguments in place of a UUID", f.NArg())
	}
	return names, nil
}

// writePIDs writes the app's pid, for rkt's tools and for stop. With the start time and the boot, stop
// knows the process by it after the pid may have been reused.
func writePIDs() error {
	born, err := bornNow(os.Getpid())
	if err != nil {
		return err
	}
	for _, f := range []struct{ name, text string }{
		{"born", born}, {"pgid", strconv.Itoa(unix.Getpgrp())}, {"pid", strconv.Itoa(os.Getpid())},
	} {
		if err := os.WriteFile(f.name+".new", []byte(f.text+"\n"), 0o644); err != nil {
			return err
		}
		if err := os.Rename(f.name+".new", f.name); err != nil {
			return err
		}
	}
	return nil
}

// bornNow returns the text of the file born, for the process that has a pid now.
func bornNow(pid int) (string, error) {
	start, err := proc.StartTime(pid)
	if err != nil {
		return "", err
	}
	boot, err := proc.BootID()
	return fmt.Sprintf("%d %s", start, boot), err
}

// readPod reads the manifest of the pod in the working directory. The pod must have one
// app.
func readPod() (*podmanifest.Manifest, *podmanifest.RuntimeApp, error) {
	m, err := podmanifest.Read()
	if err != nil {
		return nil, nil, err
	}
	if len(m.Apps) != 1 {
		return nil, nil, fmt.Errorf("the pod has %d apps, and can have one", len(m.Apps))
	}
	a, err := m.Named(m.Apps[0].Name)
	return m, a, err
}

// restrict applies those restrictions that need no isolation. If oomScore is "", the OOM
// score stays as it is.
func restrict(oomScore string, noNewPrivileges bool) error {
	if oomScore != "" {
		if err := os.WriteFile("/proc/self/oom_score_adj", []byte(oomScore), 0); err != nil {
			return fmt.Errorf("OOM score: %w", err)
		}
	}
	if noNewPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("no new privileges: %w", err)
		}
	}
	return nil
}

// isolator returns the value of an isolator, or "".
func isolator(a *podmanifest.App, name string) string {
	for _, i := range a.Isolators {
		if i.Name == name {
			return strings.Trim(string(i.Value), `"`)
		}
	}
	return ""
}

// mount mounts the host's /dev, /proc and /sys, and the app's volumes, in the app's root.
// The mount namespace is the pod's own, and its mounts must not propagate to the host.
func mount(m *podmanifest.Manifest, a *podmanifest.RuntimeApp, root, names string) error {
	for _, dir := range []string{"/dev", "/proc", "/sys"} {
		if err := bind(dir, root, dir, true, false); err != nil {
			return err
		}
	}
	shown, err := m.Shown(a)
	if err != nil {
		return err
	}
	files, err := podmanifest.NameFiles(names, root)
	if err != nil {
		return err
	}
	for _, of := range append(files, shown...) { // a volume with the same path replaces a file
		if err := mountVolume(of, root); err != nil {
			return fmt.Errorf("volume %s at %s: %w", of.Volume.Name, of.Path, err)
		}
	}
	if a.ReadOnly {
		if err := unix.Mount("", root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("read-only root: %w", err)
		}
	}
	return nil
}

func mountVolume(of podmanifest.Shown, root string) error {
	source, err := of.Volume.Path()
	if err != nil {
		return err
	}
	return bind(source, root, of.Path, of.Volume.Deep(), of.ReadOnly)
}

// bind bind-mounts a file of the host at a path of the root. Links cannot lead out of the
// root.
func bind(source, root, path string, recursive, readOnly bool) error {
	st, err := os.Stat(source)
	if err != nil {
		return err
	}
	target, err := place(root, path, st.IsDir())
	if err != nil {
		return err
	}
	defer target.Close()
	to := fmt.Sprintf("/proc/self/fd/%d", target.Fd())
	flags := uintptr(unix.MS_BIND)
	if recursive {
		flags |= unix.MS_REC
	}
	if err := unix.Mount(source, to, "", flags, ""); err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	mounted, err := place(root, path, st.IsDir()) // the mount that was made by the mount call before
	if err != nil {
		return err
	}
	defer mounted.Close()
	to = fmt.Sprintf("/proc/self/fd/%d", mounted.Fd())
	if err := unix.Mount("", to, "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("propagation of %s: %w", path, err)
	}
	if !readOnly {
		return nil
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(int(mounted.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("make %s read-only: %w", path, err)
	}
	return nil
}

// place makes a path below the root, without leaving the root, and opens it.
func place(root, path string, dir bool) (*os.File, error) {
	rootFD, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", root, err)
	}
	defer unix.Close(rootFD)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	fd, err := unix.Openat2(rootFD, path, &how)
	if errors.Is(err, unix.ENOENT) {
		if err = create(rootFD, path, dir); err == nil {
			fd, err = unix.Openat2(rootFD, path, &how)
		}
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// create makes a directory or an empty file below the root, and its parent directories.
func create(root int, path string, dir bool) error {
	parent, name := filepath.Split(filepath.Clean("/" + path))
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	fd, err := unix.Openat2(root, parent, &how)
	if errors.Is(err, unix.ENOENT) {
		if err = create(root, parent, true); err == nil {
			fd, err = unix.Openat2(root, parent, &how)
		}
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if dir {
		err = unix.Mkdirat(fd, name, 0o755)
	} else {
		err = unix.Mknodat(fd, name, unix.S_IFREG|0o644, 0)
	}
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}
