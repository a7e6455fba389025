package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// cgroup2Root returns where version 2 is mounted.
func cgroup2Root(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if os.Getuid() == 0 && unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			return dir
		}
	}
	t.Skip("needs root and a mounted cgroup2")
	return ""
}

// newV2 makes a version 2 cgroup by hand: on a hybrid host there is one, without
// controllers, which is enough for devices, killing and removing.
func newV2(t *testing.T, name string) *Group {
	t.Helper()
	root := cgroup2Root(t)
	path := fmt.Sprintf("/rkt-test-v2-%d-%s", os.Getpid(), name)
	dir := filepath.Join(root, path)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("cannot make a cgroup2: ", err)
	}
	g := newGroup(Record{Version: 2, Path: path, Dirs: map[string]string{"": dir}}, nil)
	t.Cleanup(func() { destroy(t, g) })
	return g
}

func TestVersion2KillEndsAForkBombWithSubCgroupsAndFrozen(t *testing.T) {
	g := newV2(t, "kill")
	sub := filepath.Join(g.Dir("memory"), "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	enterDirs(t, []string{sub}, "cgroup.procs", "exec sleep 60")
	enter(t, g, "i=0; while [ $i -lt 40 ]; do sleep 60 & i=$((i+1)); done; while :; do (sleep 0.01); done")
	wait.Until(t, "all processes run", func() bool { pids, _ := g.Pids(); return len(pids) > 41 })
	if err := os.WriteFile(filepath.Join(sub, "cgroup.freeze"), []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if err := g.Kill(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if pids, err := g.Pids(); err != nil || len(pids) != 0 {
		t.Errorf("%v survive, %v", pids, err)
	}
	if err := g.Remove(within(t, time.Minute)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(g.Dir("")); err == nil {
		t.Error("it is still there")
	}
}

func TestVersion2KillWithoutCgroupKill(t *testing.T) {
	g := newV2(t, "freeze")
	enter(t, g, "exec sleep 60")
	release := g.hold()
	wait.Until(t, "the cgroup is frozen", func() bool {
		b, err := os.ReadFile(filepath.Join(g.Dir(""), "cgroup.events"))
		return err == nil && strings.Contains(string(b), "frozen 1")
	})
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(g.Dir(""), "cgroup.freeze")); err != nil || string(b) != "0\n" {
		t.Errorf("still frozen: %q, %v", b, err)
	}
}

func TestVersion2DevicesAreThoseOfTheRules(t *testing.T) {
	kmsg := specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: ptr[int64](1), Minor: ptr[int64](11), Access: "rw"}
	for name, c := range map[string]struct {
		rules []specs.LinuxDeviceCgroup
		kmsg  bool
	}{
		"none":             {nil, false},
		"containerd's own": {denyAll, false},
		"with a device":    {append(denyAll, kmsg), true},
		"privileged":       {append(denyAll, specs.LinuxDeviceCgroup{Allow: true, Access: "rwm"}), true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newV2(t, "devices")
			r, err := convert(&specs.LinuxResources{Devices: c.rules, CPU: &specs.LinuxCPU{Shares: ptr[uint64](0)}}, 2)
			if err != nil {
				t.Fatal(err)
			}
			m, err := g.manager(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Set(r); err != nil {
				t.Fatal(err)
			}
			expectAccess(t, g, map[string]bool{"/dev/null": true, "/dev/zero": true, "/dev/kmsg": c.kmsg})
		})
	}
}

// expectAccess compares which devices a process of the cgroup can open.
func expectAccess(t *testing.T, g *Group, devices map[string]bool) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	script := ""
	for device := range devices {
		if _, err := os.Stat(device); err != nil {
			t.Skip("needs a device: ", err)
		}
		script += "(: <" + device + ") 2>/dev/null && echo " + device + " >>" + out + "; "
	}
	enter(t, g, script+"echo done >>"+out+"; exec sleep 60")
	var b []byte
	wait.Until(t, "all devices were tried", func() bool { b, _ = os.ReadFile(out); return strings.HasSuffix(string(b), "done\n") })
	for device, want := range devices {
		if strings.Contains(string(b), device+"\n") != want {
			t.Errorf("%s can be opened: %v, want %v", device, !want, want)
		}
	}
}
