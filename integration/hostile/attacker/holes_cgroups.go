package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// walkLimit is the number of files at which a walk ends.
const walkLimit = 5000

// probeCgroups mounts each cgroup hierarchy, and looks for cgroups that are not the container's.
func (t target) probeCgroups(say func(string, error)) {
	eachHierarchy(func(name, kind, options, path string) {
		outside := error(errCovered)
		if strings.Contains(path, "..") {
			outside = nil
		}
		say(name+": this process is outside of the root", outside)
		err := unix.Mount(kind, at, kind, 0, options)
		say(name, err)
		if err != nil {
			return
		}
		probeHierarchy(name, say)
		probeLocksBelow(name, at, say)
		_ = unix.Unmount(at, unix.MNT_DETACH)
	})
}

// eachHierarchy calls a function for each cgroup hierarchy, with the type and the options that mount it, and
// the path of this process in it.
func eachHierarchy(each func(name, kind, options, path string)) {
	b, err := os.ReadFile("/proc/self/cgroup")
	must(err)
	for line := range strings.Lines(string(b)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		kind, options := "cgroup", fields[1]
		if fields[0] == "0" {
			kind, options = "cgroup2", ""
		}
		each(strings.TrimSpace("the hierarchy "+kind+" "+options), kind, options, fields[2])
	}
}

// probeHierarchy looks at the mount of a hierarchy whose root should be the container's own cgroup.
func probeHierarchy(name string, say func(string, error)) {
	// These files exist in the root of a hierarchy of version 1, or not in that of version 2.
	_, shown := os.Stat(filepath.Join(at, "release_agent"))
	if strings.Contains(name, "cgroup2") {
		if _, err := os.Stat(filepath.Join(at, "cgroup.events")); err == nil {
			shown = errCovered
		} else {
			shown = nil
		}
	}
	say(name+": its root is shown", shown)
	foreign, kill := error(errCovered), error(errCovered)
	walk(at, func(path string, _ fs.DirEntry) {
		if filepath.Base(path) != "cgroup.procs" {
			return
		}
		// A process that has no number here is one outside of the PID namespace.
		b, _ := os.ReadFile(path)
		if !bytes.HasPrefix(b, []byte("0\n")) && !bytes.Contains(b, []byte("\n0\n")) {
			return
		}
		foreign = nil
		for _, file := range []string{"cgroup.kill", "cgroup.freeze", "cgroup.procs", "freezer.state"} {
			if opens(filepath.Join(filepath.Dir(path), file)) == nil {
				kill = nil
			}
		}
	})
	say(name+": processes of others are in it", foreign)
	say(name+": cgroups of others open for writing", kill)
}

// walk visits the files below a directory, up to a limit.
func walk(dir string, visit func(path string, d fs.DirEntry)) {
	n := 0
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if n++; n > walkLimit {
			return fs.SkipAll
		}
		if err == nil {
			visit(path, d)
		}
		return nil
	})
}

// probeLocks looks for files that a process of the host has locked: a container that waits there holds the
// lock when that process ends.
func (t target) probeLocks(say func(string, error)) {
	for _, dir := range []string{"/sys/fs/cgroup", "/dev", "/run", "/etc"} {
		probeLocksBelow(dir, dir, say)
	}
}

func probeLocksBelow(name, dir string, say func(string, error)) {
	found := error(errCovered)
	walk(dir, func(path string, d fs.DirEntry) {
		if !d.IsDir() && !d.Type().IsRegular() {
			return
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return
		}
		defer unix.Close(fd)
		if errors.Is(unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
			found = nil
		}
	})
	say(name+": a file is locked by another process", found)
}
