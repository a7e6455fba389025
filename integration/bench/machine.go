package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine describes everything except the runtimes on which the figures depend.
type machine struct {
	Kernel     string    `json:"kernel"`
	Processors int       `json:"processors"`
	Model      string    `json:"model"`
	Cgroup     string    `json:"cgroup"`
	FileSystem string    `json:"fileSystem"` // of all files except those in /run
	Containerd string    `json:"containerd"`
	Runc       string    `json:"runc"`
	Shim       string    `json:"shim"`
	Started    time.Time `json:"started"`
	Seconds    float64   `json:"seconds"`
	// LoadBefore and LoadAfter are the load averages of one minute.
	LoadBefore string `json:"loadBefore"`
	LoadAfter  string `json:"loadAfter"`
}

func describeMachine(ctx context.Context, r *rig) (*machine, error) {
	m := &machine{
		Processors: runtime.NumCPU(),
		Model:      model(),
		Cgroup:     cgroupVersion(),
		FileSystem: fileSystem(r.dir),
		Runc:       versionOf(ctx, "runc", "--version"),
		Shim:       versionOf(ctx, filepath.Join(r.shims(), "containerd-shim-rkt-v1"), "-v"),
		Started:    time.Now(),
		LoadBefore: load(),
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return nil, err
	}
	m.Kernel = unix.ByteSliceToString(uts.Release[:])
	v, err := r.client.Version(ctx)
	if err != nil {
		return nil, err
	}
	m.Containerd = v.Version
	return m, nil
}

// finish notes how the run ended.
func (m *machine) finish() {
	m.Seconds = time.Since(m.Started).Seconds()
	m.LoadAfter = load()
}

// String returns the line above a table.
func (m *machine) String() string {
	return fmt.Sprintf("Linux %s, %d × %s, cgroup %s, files on %s,\nload average %s before and %s after %.0f s;\ncontainerd %s, runc %s, containerd-shim-rkt-v1 %s\n",
		m.Kernel, m.Processors, m.Model, m.Cgroup, m.FileSystem, m.LoadBefore, m.LoadAfter, m.Seconds, m.Containerd, m.Runc, m.Shim)
}

func cgroupVersion() string {
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
		return "v2"
	}
	return "v1"
}

// fileSystem returns the type of the file system of a directory, with those of its options that
// decide how long it takes to make and remove files.
func fileSystem(dir string) string {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err.Error()
	}
	return parseMounts(string(b), dir)
}

// parseMounts finds the mount of a directory, which is the last of those with
// the longest mount point.
func parseMounts(mountinfo, dir string) string {
	found, length := "", -1
	for _, l := range strings.Split(mountinfo, "\n") {
		before, after, _ := strings.Cut(l, " - ")
		fields, super := strings.Fields(before), strings.Fields(after)
		if len(fields) < 6 || len(super) < 3 {
			continue
		}
		point := strings.TrimSuffix(fields[4], "/") + "/"
		if !strings.HasPrefix(dir+"/", point) || len(point) < length {
			continue
		}
		found, length = super[0], len(point)
		if slices.Contains(strings.Split(super[2], ","), "discard") {
			found += " with discard"
		}
	}
	return found
}

func model() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for _, l := range strings.Split(string(b), "\n") {
		if name, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func load() string {
	b, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(b), " ")
	return first
}

// versionOf returns the version that a program prints, or the error of running it.
func versionOf(ctx context.Context, program string, args ...string) string {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return err.Error()
	}
	return parseVersion(string(out))
}

// parseVersion finds the first line with a version, written as "version V" or
// "Version: V".
func parseVersion(text string) string {
	for _, l := range strings.Split(text, "\n") {
		fields := strings.Fields(l)
		for i, f := range fields[:max(0, len(fields)-1)] {
			if strings.EqualFold(strings.TrimSuffix(f, ":"), "version") {
				return fields[i+1]
			}
		}
	}
	return strings.TrimSpace(text)
}
