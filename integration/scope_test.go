package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// A client that is configured for systemd's cgroups, like Docker and Kubernetes, sends such a
// path.
// requirements.md#C1
func TestATaskInAScopeOfSystemds(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Skip("systemd does not run")
	}
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		// systemd's units and their names are the host's.
		name := fmt.Sprintf("%d%s%s", os.Getpid(), c.name, c.id())
		slice := "rktit" + name + ".slice"
		t.Cleanup(func() { systemctl(t, "stop", slice) })
		unit := "rkt-" + name + ".scope"
		task := c.running(t, []string{"testprog", "sleep", "1000"},
			oci.WithCgroup(slice+":rkt:"+name), oci.WithMemoryLimit(64<<20), oci.WithPidsLimit(40))
		if state := unitProperty(t, unit, "ActiveState"); state != "active" {
			t.Errorf("%s is %s", unit, state)
		}
		inside := "/" + slice + "/" + unit
		expectInside(t, task.Pid(), inside)
		memoryLimit.expect(t, task, "67108864")
		systemctl(t, "daemon-reload") // systemd then writes its own limits again
		pids := int64(50)
		if err := task.Update(ctx, containerd.WithResources(&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &pids}})); err != nil {
			t.Error(err)
		}
		pidsLimit.expect(t, task, "50")
		memoryLimit.expect(t, task, "67108864")
		p, err := task.Exec(ctx, "e", process(t, ctx, task, "testprog", "sleep", "1000"), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectInside(t, p.Pid(), inside)
		if err := task.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		if f := readFigures(t, c, task); f.processes < 2 || f.limit != 64<<20 {
			t.Errorf("%+v", f)
		}
		second := c.container(t, []string{"true"}, oci.WithCgroup(slice+":rkt:"+name))
		if _, err := second.NewTask(ctx, cio.NullIO); err == nil || !strings.Contains(err.Error(), "in use by container "+task.ID()+":") {
			t.Errorf("another container with the same scope: %v", err)
		}
		if _, err := task.Delete(ctx, containerd.WithProcessKill); err != nil {
			t.Fatal(err)
		}
		wait.Observe(t, "systemd has forgotten "+unit, func() (bool, string) {
			state := unitProperty(t, unit, "LoadState")
			return state == "not-found", state
		})
	})
}

// expectInside checks that a process is below a cgroup in every hierarchy of the host with a
// controller, and in systemd's own hierarchy.
func expectInside(t *testing.T, pid uint32, dir string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(int(pid)), "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		hierarchy, path, _ := strings.Cut(strings.TrimSpace(line), ":/")
		if strings.HasSuffix(hierarchy, ":") && strings.Count(string(b), "\n") > 1 {
			continue // version 2, on a host whose controllers are on version 1
		}
		if path = "/" + path; path != dir && !strings.HasPrefix(path, dir+"/") {
			t.Errorf("process %d is in %s, not below %s", pid, path, dir)
		}
	}
}

func unitProperty(t *testing.T, unit, property string) string {
	t.Helper()
	return systemctl(t, "show", "--value", "-p", property, unit)
}

func systemctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("systemctl", args...).CombinedOutput()
	if err != nil {
		t.Errorf("systemctl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}
