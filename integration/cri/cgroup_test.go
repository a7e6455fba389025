package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// unified tells whether the machine's controllers are all in a hierarchy of version
// 2.
func unified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// hierarchies are the mount points of the cgroup hierarchies, by each of their
// mount options: among those of version 1 are their controllers. Version 2's is
// by the empty name.
func hierarchies(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
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

// makeParentCgroup makes what is the kubelet's to make: the pod's cgroup. It is
// removed after the pod.
func makeParentCgroup(t *testing.T, config *runtimeapi.PodSandboxConfig) {
	t.Helper()
	parent := config.GetLinux().GetCgroupParent()
	if !strings.HasPrefix(parent, "/") {
		return
	}
	for controller, dir := range hierarchies(t) {
		path := filepath.Join(dir, parent)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if controller == "cpuset" {
			inheritCpuset(t, dir, parent)
		}
		t.Cleanup(func() {
			eventually(t, "nothing is in the pod's cgroup", func() (bool, string) {
				err := os.Remove(path)
				return err == nil || errors.Is(err, fs.ErrNotExist), fmt.Sprint(err)
			})
		})
	}
}

// inheritCpuset gives every cgroup down to path the processors and memory nodes of
// the one above, without which no process can be in it.
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

// cgroupOf is the path of a container's cgroup in a controller's hierarchy.
func (p *pod) cgroupOf(controller, id string) string {
	p.t.Helper()
	dir, ok := hierarchies(p.t)[controller]
	if !ok {
		p.t.Fatalf("there is no hierarchy of %q", controller)
	}
	return filepath.Join(dir, p.config.GetLinux().GetCgroupParent(), id)
}
