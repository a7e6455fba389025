package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

func TestAMachineIsBesideTheAppsInThePodsCgroup(t *testing.T) {
	if c, err := newMachineCgroup(nil, "u"); err != nil || c.dirs != nil {
		t.Errorf("without a cgroup of the pod: %+v, %v", c, err)
	}
	v1 := &abi.Cgroup{Version: 1, Dirs: []string{"/memory/pod", "/cpu/pod"}}
	c, err := newMachineCgroup(v1, "u")
	if err != nil || !slices.Equal(c.dirs, v1.Dirs) {
		t.Errorf("version 1: %+v, %v", c, err)
	}
	c.remove() // nothing
	dir := t.TempDir()
	if c, err = newMachineCgroup(&abi.Cgroup{Version: 2, Dirs: []string{dir}}, "u"); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "rkt-machine-u")
	if _, err := os.Stat(own); err != nil || !slices.Equal(c.dirs, []string{own}) {
		t.Errorf("version 2: %+v, %v", c, err)
	}
	c.remove()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
	if c, err = newMachineCgroup(&abi.Cgroup{Version: 1, Dirs: v1.Dirs, Unified: dir}, "u"); err != nil || !slices.Equal(c.dirs, append(slices.Clone(v1.Dirs), own)) {
		t.Errorf("both versions: %+v, %v", c, err)
	}
	c.remove()
	if _, err := newMachineCgroup(&abi.Cgroup{Version: 2, Dirs: []string{filepath.Join(dir, "none")}}, "u"); err == nil {
		t.Error("a cgroup of the pod that is not there is no error")
	}
}
