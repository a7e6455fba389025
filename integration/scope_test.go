package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/types/runc/options"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
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

// A weight counts only among the siblings of the cgroup that has it, and a client's cgroup is the scope. If runc's shim
// is a column, with a current runc, the others have its ratio, to within a fifth.
// requirements.md#C2
func TestCPURequestsOfContainersInScopesCount(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Skip("systemd does not run")
	}
	ratios := map[string][2]float64{}
	for _, c := range suite.columns { // one after the other: columns would compete
		if !slices.Contains(allColumns(), c.name) || c.name == "kvm" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Cleanup(func() { c.cleanUp(t) })
			name := fmt.Sprintf("rktit%d%s%s", os.Getpid(), c.name, c.id())
			t.Cleanup(func() { systemctl(t, "stop", name+".slice") })
			var ratio [2]float64
			t.Run("two containers of a pod", func(t *testing.T) {
				ratio[0] = expectRatioOfScopes(t, c, [2]string{name + ".slice:rkt:" + name + "a", name + ".slice:rkt:" + name + "b"}, false)
			})
			t.Run("two pods", func(t *testing.T) {
				ratio[1] = expectRatioOfScopes(t, c, [2]string{name + "-p1.slice:rkt:" + name + "c", name + "-p2.slice:rkt:" + name + "d"}, true)
			})
			ratios[c.name] = ratio
		})
	}
	runcs, ok := ratios["runc"]
	for name, ratio := range ratios {
		for i := range ratio {
			if ok && (ratio[i] < runcs[i]*4/5 || ratio[i] > runcs[i]*6/5) {
				t.Errorf("%s: 1 : %.2f, and runc 1 : %.2f", name, ratio[i], runcs[i])
			}
		}
	}
}

// bySystemd has runc's shim make scopes, by a current runc. Debian's makes other weights on version 2.
func bySystemd(t *testing.T, c *column) oci.SpecOpts {
	t.Helper()
	if c.name != "runc" {
		return func(context.Context, oci.Client, *containers.Container, *oci.Spec) error { return nil }
	}
	binary, err := binaries.Runc(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	asked, err := typeurl.MarshalAnyToProto(&options.Options{BinaryName: binary, SystemdCgroup: true})
	if err != nil {
		t.Fatal(err)
	}
	return func(_ context.Context, _ oci.Client, of *containers.Container, _ *oci.Spec) error {
		of.Runtime.Options = asked
		return nil
	}
}

// With the kubelet's driver cgroupfs, cgroups of pods and containers are directories. runc's shim has the same ratio.
// requirements.md#C2
func TestCPURequestsCountWithTheDriverCgroupfs(t *testing.T) {
	for _, c := range suite.columns { // one after the other: columns would compete
		if c.name == "kvm" || c.few || c.usesRunc() && c.wraps != currentRunc && unified() { // Debian's runc, 1.1, makes other weights
			continue
		}
		t.Run(cmp.Or(c.wraps, c.name), func(t *testing.T) {
			pod := fmt.Sprintf("/rktit%d%s%s", os.Getpid(), c.name, c.id())
			for _, dir := range []string{pod, pod + "/p1", pod + "/p2"} {
				makePodCgroup(t, dir)
			}
			t.Cleanup(func() { c.cleanUp(t) })
			t.Run("two containers of a pod", func(t *testing.T) {
				dirs := [2]string{pod + "/a", pod + "/b"}
				for i, shares := range []uint64{fewShares, manyShares} {
					c.loaded(t, dirs[i], shares)
				}
				expectRatio(t, c, dirs)
				c.cleanUp(t)
			})
			t.Run("two pods", func(t *testing.T) {
				dirs := [2]string{pod + "/p1", pod + "/p2"}
				for i, shares := range []uint64{fewShares, manyShares} {
					setShares(t, dirs[i], shares)
					c.loaded(t, dirs[i]+"/c", shares)
				}
				expectRatio(t, c, dirs)
				c.cleanUp(t)
			})
		})
	}
}

// loaded starts a container under load in a cgroup.
func (c *column) loaded(t *testing.T, dir string, shares uint64) {
	t.Helper()
	limits := specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: &shares}}
	c.running(t, []string{"sh", "-c", load}, oci.WithCgroup(dir), withResources(limits))
	expectShares(t, dir, shares)
}

// makePodCgroup makes a cgroup as the kubelet does for a pod. The end of the test removes it.
func makePodCgroup(t *testing.T, path string) {
	t.Helper()
	for _, root := range podHierarchies(t) {
		dir := filepath.Join(root, path)
		if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) { // two names of one hierarchy
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { must(t, os.Remove(dir)) })
		if unified() {
			write(t, filepath.Join(filepath.Dir(dir), "cgroup.subtree_control"), "+cpu +memory +pids")
		}
	}
}

// setShares sets the shares of a pod's cgroup, as the kubelet does.
func setShares(t *testing.T, path string, shares uint64) {
	t.Helper()
	file := filepath.Join("/sys/fs/cgroup/cpu", path, "cpu.shares")
	if unified() {
		file = filepath.Join("/sys/fs/cgroup", path, "cpu.weight")
	}
	write(t, file, strconv.FormatUint(weightOf(shares), 10))
}

// The shares of requests of 50m and 450m, and the bounds of the ratio that they give under load. On version 2 they are a
// fifth around 54 : 11, the weights that runc 1.5 makes of these shares.
const (
	fewShares, manyShares                     = 51, 460
	leastRatio, mostRatio                     = 6.0, 12.0
	leastRatioOnVersion2, mostRatioOnVersion2 = 3.9, 5.9
	loadedFor                                 = 4 * time.Second // of processor time
)

// load uses the first processor. On several of them, other work on a busy host would change the ratio.
const load = "exec taskset 1 sh -c 'while :; do :; done'"

// expectRatioOfScopes runs two containers in scopes under load. With ofPods each of them is in a slice of its own, which
// has the shares, as the kubelet's slice of a pod does.
func expectRatioOfScopes(t *testing.T, c *column, paths [2]string, ofPods bool) float64 {
	t.Helper()
	var dirs [2]string
	for i, shares := range []uint64{fewShares, manyShares} {
		slice, name, _ := strings.Cut(paths[i], ":rkt:")
		limits := specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: &shares}}
		c.running(t, []string{"sh", "-c", load},
			oci.WithCgroup(paths[i]), oci.WithMemoryLimit(64<<20), withResources(limits), bySystemd(t, c))
		unit := "rkt-" + name + ".scope"
		if ofPods {
			name := "CPUShares"
			if unified() {
				name = "CPUWeight"
			}
			systemctl(t, "set-property", "--runtime", slice, fmt.Sprintf("%s=%d", name, weightOf(shares)))
		}
		dirs[i] = unitProperty(t, unit, "ControlGroup")
		expectLimitsOfScope(t, dirs[i], shares)
	}
	systemctl(t, "daemon-reload")
	for i, shares := range []uint64{fewShares, manyShares} {
		expectLimitsOfScope(t, dirs[i], shares)
	}
	return expectRatio(t, c, dirs)
}

// expectRatio measures the time that two cgroups get, whose shares are fewShares and manyShares.
func expectRatio(t *testing.T, c *column, dirs [2]string) float64 {
	t.Helper()
	before := [2]time.Duration{processorTime(t, dirs[0]), processorTime(t, dirs[1])}
	var used [2]time.Duration
	wait.ObserveWithin(t, 2*time.Minute, "the containers have used their time", func() (bool, string) {
		for i := range used {
			used[i] = processorTime(t, dirs[i]) - before[i]
		}
		return used[0]+used[1] > loadedFor, fmt.Sprint(used)
	})
	ratio := float64(used[1]) / float64(used[0])
	t.Logf("%s: shares of %d and %d give 1 : %.2f (%v)", c.name, fewShares, manyShares, ratio, used)
	least, most := leastRatio, mostRatio
	if unified() {
		least, most = leastRatioOnVersion2, mostRatioOnVersion2
	}
	if ratio < least || ratio > most {
		t.Errorf("shares of %d and %d give 1 : %.2f", fewShares, manyShares, ratio)
	}
	return ratio
}

// withResources sets the limits of processors.
func withResources(res specs.LinuxResources) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		s.Linux.Resources.CPU = res.CPU
		return nil
	}
}

// expectLimitsOfScope reads the files of a scope, as cAdvisor does.
func expectLimitsOfScope(t *testing.T, dir string, shares uint64) {
	t.Helper()
	if got := fileOfCgroup(t, dir, "memory", "memory.max", "memory.limit_in_bytes"); got != strconv.Itoa(64<<20) {
		t.Errorf("%s: the limit of memory is %s", dir, got)
	}
	expectShares(t, dir, shares)
}

// weightOf returns the weight in a cgroup's file for shares. On version 2 it is the one that runc 1.5 makes of them.
func weightOf(shares uint64) uint64 {
	if !unified() {
		return shares
	}
	return map[uint64]uint64{fewShares: 11, manyShares: 54}[shares]
}

// expectShares checks the weight of a cgroup.
func expectShares(t *testing.T, dir string, shares uint64) {
	t.Helper()
	want := weightOf(shares)
	if got := fileOfCgroup(t, dir, "cpu", "cpu.weight", "cpu.shares"); got != strconv.FormatUint(want, 10) {
		t.Errorf("%s: shares of %d are the weight %s, want %d", dir, shares, got, want)
	}
}

func processorTime(t *testing.T, dir string) time.Duration {
	t.Helper()
	text := fileOfCgroup(t, dir, "cpuacct", "cpu.stat", "cpuacct.usage")
	unit := time.Nanosecond
	if rest, ok := strings.CutPrefix(text, "usage_usec "); ok { // of version 2
		text, unit = strings.Fields(rest)[0], time.Microsecond
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(n) * unit
}

// fileOfCgroup reads the file of a cgroup, which has another name with version 1.
func fileOfCgroup(t *testing.T, dir, controller, v2, v1 string) string {
	t.Helper()
	path := filepath.Join("/sys/fs/cgroup", dir, v2)
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		path = filepath.Join("/sys/fs/cgroup", controller, dir, v1)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
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
