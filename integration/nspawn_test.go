package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

const nspawnProgram = "systemd-nspawn"

// withNspawn runs a case with the stage1 nspawn only.
func withNspawn(t *testing.T, test func(t *testing.T, c *column)) {
	t.Helper()
	if _, err := exec.LookPath(nspawnProgram); err != nil {
		t.Skip("needs " + nspawnProgram)
	}
	eachOf(t, []string{"nspawn"}, test)
}

// The program is the first process of a container that systemd-nspawn has made. Neither the
// systemd-nspawn process nor the container's directory is left.
func TestNspawnMakesTheContainerAndLeaves(t *testing.T) {
	withNspawn(t, func(t *testing.T, c *column) {
		name := "group-" + c.id()
		task := c.running(t, []string{"testprog", "sleep", "1000"}, group(name), oci.WithHostname("box"))
		dir, record := c.pod(t, name)
		for _, ns := range []string{"mnt", "pid", "ipc", "uts", "net", "cgroup"} {
			theirs, ours := namespace(t, int(task.Pid()), ns), namespace(t, os.Getpid(), ns)
			if (theirs == ours) != (ns == "cgroup") { // the spec asks for no cgroup namespace
				t.Errorf("%s: the container has %s, the host %s", ns, theirs, ours)
			}
		}
		status := read(t, fmt.Sprintf("/proc/%d/status", task.Pid()))
		if !strings.Contains(status, fmt.Sprintf("\nPPid:\t%d\n", record.Supervisor.PID)) || !strings.Contains(status, "\t1\n") {
			t.Errorf("it is no first process with the supervisor %d as its parent:\n%s", record.Supervisor.PID, status)
		}
		c.exec(t, nil, task.ID(), "sh", "-c", "hostname; cat /proc/1/comm; ls /opt/stage2 /run/host 2>/dev/null; true").must(t).mustSay(t, "box\ntestprog\n")
		left, _ := filepath.Glob("/run/systemd/nspawn/propagate/rkt-" + filepath.Base(dir) + "-*")
		for _, cmdline := range globbed(t, "/proc/[0-9]*/cmdline") {
			if b, err := os.ReadFile(cmdline); err == nil && strings.HasPrefix(string(b), "systemd-nspawn\x00") && strings.Contains(string(b), filepath.Base(dir)) {
				left = append(left, cmdline)
			}
		}
		if len(left) > 0 {
			t.Errorf("systemd-nspawn has left %v", left)
		}
		exited := c.wait(t, task)
		kill(t, c.context(t), task, syscall.SIGKILL)
		expectExit(t, exited, 137)
	})
}

func globbed(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestNspawnHasSeveralContainersInAPod(t *testing.T) {
	withNspawn(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		name := "group-" + c.id()
		first := c.running(t, []string{"testprog", "sleep", "1000"}, group(name), oci.WithHostname("box"))
		// The containers of a Kubernetes pod have these namespaces.
		of := func(kind specs.LinuxNamespaceType, file string) oci.SpecOpts {
			return oci.WithLinuxNamespace(specs.LinuxNamespace{Type: kind, Path: fmt.Sprintf("/proc/%d/ns/%s", first.Pid(), file)})
		}
		second := c.running(t, []string{"testprog", "sleep", "1000"}, group(name),
			of(specs.NetworkNamespace, "net"), of(specs.IPCNamespace, "ipc"), of(specs.UTSNamespace, "uts"))
		if a, b := c.shim(t, first.ID()), c.shim(t, second.ID()); a != b {
			t.Errorf("shims %d and %d for one pod", a, b)
		}
		for ns, shared := range map[string]bool{"net": true, "ipc": true, "uts": true, "pid": false, "mnt": false} {
			if a, b := namespace(t, int(first.Pid()), ns), namespace(t, int(second.Pid()), ns); (a == b) != shared {
				t.Errorf("%s namespaces %s and %s, shared should be %v", ns, a, b, shared)
			}
		}
		c.exec(t, nil, second.ID(), "hostname").must(t).mustSay(t, "box\n")
		exited := c.wait(t, first)
		kill(t, ctx, first, syscall.SIGKILL)
		expectExit(t, exited, 137)
		c.drop(t, first)
		c.exec(t, nil, second.ID(), "echo", "still here").must(t).mustSay(t, "still here\n")
		expectExit(t, c.wait(t, c.running(t, []string{"testprog", "exit", "5"}, group(name))), 5)
	})
}

func TestNspawnRefusesWhatItCannotMake(t *testing.T) {
	withNspawn(t, func(t *testing.T, c *column) {
		for words, opts := range map[string][]oci.SpecOpts{
			"/linux/uidMappings":      {oci.WithUserNamespace([]specs.LinuxIDMapping{{HostID: 100000, Size: 65536}}, []specs.LinuxIDMapping{{HostID: 100000, Size: 65536}})},
			`"time" is not supported`: {oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.TimeNamespace})},
		} {
			_, err := c.container(t, []string{"true"}, opts...).NewTask(c.context(t), cio.NullIO)
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%v, want %q in it", err, words)
			}
		}
	})
}
