package cri

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// unified reports whether all of the machine's controllers are in a hierarchy of version 2.
func unified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// hierarchies maps each mount option of a cgroup hierarchy, which for version 1 include the
// controllers, to its mount point. Version 2 has the empty name. systemd-nspawn mounts name=systemd
// for a moment at another place, below /tmp.
func hierarchies(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if !strings.HasPrefix(f[1], "/sys/fs/cgroup") {
			continue
		}
		switch f[2] {
		case "cgroup2":
			found[""] = f[1]
		case "cgroup":
			for o := range strings.SplitSeq(f[3], ",") {
				found[o] = f[1]
			}
		}
	}
	return found
}

// run distinguishes the cgroups of this process from those of other runs of the tests. In an
// enclosure each of them has the same pid.
var run = strings.ToLower(rand.Text()[:8])

// podsCgroup returns the parent of the cgroups of the column's pods, which are all burstable. A
// kubelet with a cgroup root of its own has the same path.
func (c *column) podsCgroup() string {
	if c.systemd {
		return slicePath(fmt.Sprintf("rktcri%s%d-kubepods-burstable", run, c.number))
	}
	return fmt.Sprintf("/rkt-cri-%s-%d/kubepods/burstable", run, c.number)
}

// podCgroup is the cgroup of a pod.
func (c *column) podCgroup(serial int) string {
	if c.systemd {
		return slicePath(fmt.Sprintf("rktcri%s%d-kubepods-burstable-pod%d", run, c.number, serial))
	}
	return fmt.Sprintf("%s/pod%d", c.podsCgroup(), serial)
}

// makePodCgroup makes the pod's cgroup, as the kubelet does. It is removed after the pod.
func (c *column) makePodCgroup(t *testing.T, path string) {
	t.Helper()
	switch {
	case !strings.HasPrefix(path, "/"): // there is no kubelet, so the pod has no cgroup of its own
	case c.systemd:
		startSlice(t, filepath.Base(path))
	default:
		mounted := hierarchies(t)
		for _, root := range slices.Compact(slices.Sorted(maps.Values(mounted))) {
			makeCgroup(t, root, path)
		}
		switch root, v1 := mounted["cpuset"]; {
		case v1:
			inheritCpuset(t, root, path)
		case unified():
			handControllersDown(t, mounted[""], path)
		}
	}
}

// makeCgroup makes a cgroup in a hierarchy, and removes it after the test.
func makeCgroup(t *testing.T, root, path string) {
	t.Helper()
	dir := filepath.Join(root, path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		wait.Observe(t, "nothing is in the pod's cgroup", func() (bool, string) {
			err := os.Remove(dir)
			return err == nil || errors.Is(err, fs.ErrNotExist), fmt.Sprint(err)
		})
	})
}

// inheritCpuset gives every cgroup down to path the processors and memory nodes of its parent.
// Without these no process can be in it.
func inheritCpuset(t *testing.T, root, path string) {
	t.Helper()
	above := root
	for element := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		dir := filepath.Join(above, element)
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			b, err := os.ReadFile(filepath.Join(above, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), b, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		above = dir
	}
}

// handControllersDown enables every controller of the root cgroup in all cgroups down to path.
func handControllersDown(t *testing.T, root, path string) {
	t.Helper()
	above := root
	for element := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		all, err := os.ReadFile(filepath.Join(above, "cgroup.controllers"))
		if err != nil {
			t.Fatal(err)
		}
		for name := range strings.FieldsSeq(string(all)) {
			if err := os.WriteFile(filepath.Join(above, "cgroup.subtree_control"), []byte("+"+name), 0); err != nil {
				t.Fatal(err)
			}
		}
		above = filepath.Join(above, element)
	}
}

// cgroup returns the path of a container's cgroup below the root of a hierarchy.
func (c *container) cgroup() string {
	if c.path != "" {
		return c.path
	}
	parent := c.pod.config.GetLinux().GetCgroupParent()
	if !c.systemd {
		return filepath.Join(parent, c.id)
	}
	scope := filepath.Join(parent, "cri-containerd-"+c.id+".scope")
	if c.isRunc() {
		return scope
	}
	return filepath.Join(scope, "app")
}

// cgroupDir returns the directory of a cgroup in a controller's hierarchy.
func cgroupDir(t *testing.T, controller, path string) string {
	t.Helper()
	root, ok := hierarchies(t)[controller]
	if !ok {
		t.Fatalf("there is no hierarchy of %q", controller)
	}
	return filepath.Join(root, path)
}
