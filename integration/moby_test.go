package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	runc "github.com/containerd/containerd/api/types/runc/options"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/status"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// The tests of this file make the calls of Docker's daemon to containerd, in its order, and
// read the answers as it does. make test-docker runs the daemon itself.

// exitCodeOf is the exit code that moby derives from the error of a Create or Start
// (daemon/errors.go, setExitCodeFromError). `docker run` ends with it, except for 127 of a file
// in the place of a directory, for which its client ends with 125.
func exitCodeOf(err error) int {
	text := strings.ToLower(status.Convert(err).Message())
	contains := func(words string) bool { return strings.Contains(text, words) }
	switch {
	case contains(syscall.EACCES.Error()), contains(syscall.EISDIR.Error()):
		return 126
	case contains(syscall.ENOTDIR.Error()):
		return 127
	case contains("executable file not found"), contains("no such file or directory"),
		contains("system cannot find the file specified"), contains("failed to run runc create/exec call"):
		return 127
	}
	return 128
}

func TestMobyReadsExitCodesFromErrors(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		programs := map[string]int{
			"no-such-program": 127, "/no/such/program": 127, "/etc/passwd/x": 127, "/etc/not-executable": 126, "/etc": 126,
		}
		for program, want := range programs {
			_, err := c.container(t, []string{program}).NewTask(ctx, cio.NullIO)
			if err == nil || exitCodeOf(err) != want {
				t.Errorf("create %s: %v: exit code %d, want %d", program, err, exitCodeOf(err), want)
			}
		}
		_, err := c.container(t, []string{"true"}, oci.WithProcessCwd("/etc/passwd")).NewTask(ctx, cio.NullIO)
		if err == nil || exitCodeOf(err) != 127 {
			t.Errorf("create in a directory that is a file: %v", err)
		}
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		for program, want := range programs {
			exec, err := task.Exec(ctx, "e"+strings.ReplaceAll(program, "/", "-"), process(t, ctx, task, program), cio.NullIO)
			if err != nil {
				t.Fatal(err)
			}
			if err := exec.Start(ctx); err == nil || exitCodeOf(err) != want {
				t.Errorf("exec %s: %v: exit code %d, want %d", program, err, exitCodeOf(err), want)
			}
			deleteTask(t, ctx, exec) // at once, because the name is used again
		}
	})
}

// Without a snapshotter the daemon mounts the root itself. The spec names the root, and Create
// gets no mounts.
func TestMobyMountsTheRootItself(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx, id := c.context(t), c.id()
		img := c.image(t, c.client)
		root := t.TempDir()
		mounts := c.snapshot(t, img, c.id())
		for _, m := range mounts {
			if err := m.Mount(root); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(root, 0); err != nil {
				t.Errorf("the root is still in use: %v", err)
			}
		})
		container, err := c.client.NewContainer(ctx, id, containerd.WithRuntime(c.runtime, nil),
			containerd.WithNewSpec(oci.WithRootFSPath(root), oci.WithImageConfig(img), oci.WithProcessArgs("sh", "-c", "echo written >/file")))
		if err != nil {
			t.Fatal(err)
		}
		task := c.newTask(t, container, cio.NullIO)
		exited := c.wait(t, task)
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 0)
		deleteTask(t, ctx, task)
		if got := read(t, filepath.Join(root, "file")); got != "written\n" {
			t.Errorf("the file holds %q", got)
		}
	})
}

// The daemon finds the network namespace by the pid that Create returns, and adds the interface
// before Start.
func TestMobyAttachesTheNetworkBetweenCreateAndStart(t *testing.T) {
	for _, program := range []string{"nsenter", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("the network is made with nsenter and ip: ", err)
		}
	}
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		var out streams
		task := c.newTask(t, c.container(t, []string{"sh", "-c", "ip -o -4 addr show; ping -c 1 -W 10 10.250.9.8 >/dev/null && echo answered"}), out.creator(c, nil))
		inside := fmt.Sprintf("--net=/proc/%d/ns/net", task.Pid())
		// The other end is in a namespace that a second container has.
		other := c.running(t, []string{"testprog", "sleep", "1000"})
		for _, call := range [][]string{
			{"nsenter", inside, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "peer", "netns", fmt.Sprint(other.Pid())},
			{"nsenter", inside, "ip", "addr", "add", "10.250.9.7/24", "dev", "eth0"},
			{"nsenter", inside, "ip", "link", "set", "eth0", "up"},
			{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", other.Pid()), "sh", "-c", "ip addr add 10.250.9.8/24 dev peer && ip link set peer up"},
		} {
			if said, err := exec.Command(call[0], call[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", strings.Join(call, " "), err, said)
			}
		}
		exited := c.wait(t, task)
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 0)
		awaitOutput(t, task)
		deleteTask(t, ctx, task)
		for _, want := range []string{"eth0", "10.250.9.7/24", "127.0.0.1/8", "answered"} {
			if !strings.Contains(out.stdout.String(), want) {
				t.Errorf("%q is not in\n%s", want, out.stdout.String())
			}
		}
	})
}

// docker top wants every process, each with an Info that can be decoded or with none, and ps
// must find them.
func TestMobyLearnsProcessesFromPids(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "fork", "2"})
		exec, err := task.Exec(ctx, "beside", process(t, ctx, task, "testprog", "sleep", "1000"), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		if err := exec.Start(ctx); err != nil {
			t.Fatal(err)
		}
		var infos []containerd.ProcessInfo
		wait.Observe(t, "four processes", func() (bool, string) {
			if infos, err = task.Pids(ctx); err != nil {
				t.Fatal(err)
			}
			return len(infos) == 4, fmt.Sprint(infos)
		})
		var execs []string
		for _, p := range infos {
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", p.Pid)); err != nil {
				t.Error(err)
			}
			if p.Info.GetTypeUrl() == "" {
				continue
			}
			v, err := typeurl.UnmarshalAny(p.Info)
			if err != nil {
				t.Errorf("process %d: %v", p.Pid, err)
			}
			details, ok := v.(*runc.ProcessDetails)
			if !ok {
				t.Fatalf("process %d has a %T", p.Pid, v)
			}
			if p.Pid == exec.Pid() || details.ExecID != "" {
				execs = append(execs, details.ExecID)
			}
		}
		if !slices.Equal(execs, []string{"beside"}) {
			t.Errorf("execs are %q", execs)
		}
	})
}

// docker stats reads these fields without a check for nil.
func TestMobyReadsStats(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		task := c.running(t, []string{"sh", "-c", "testprog allocate 8; testprog fork 1"}, oci.WithMemoryLimit(64<<20), oci.WithPidsLimit(40))
		// The kernel counts pages in batches, so the first ones may not be counted yet.
		wait.Observe(t, "every figure is there", func() (bool, string) {
			m, err := task.Metrics(c.context(t))
			if err != nil {
				t.Fatal(err)
			}
			data, err := typeurl.UnmarshalAny(m.Data)
			if err != nil {
				t.Fatal(err)
			}
			return time.Since(m.Timestamp.AsTime()) < time.Hour && complete(data), fmt.Sprintf("%T %+v", data, data)
		})
	})
}

// complete reports whether metrics have the fields that docker stats reads, for a container
// with a limit of 64 MiB and 40 processes.
func complete(metrics any) bool {
	switch s := metrics.(type) {
	case *v1.Metrics:
		return s.CPU != nil && s.CPU.Usage != nil && s.CPU.Throttling != nil && s.Memory != nil && s.Memory.Usage != nil && s.Pids != nil &&
			s.CPU.Usage.Total > 0 && len(s.CPU.Usage.PerCPU) > 0 &&
			s.Memory.Usage.Limit == 64<<20 && s.Memory.Usage.Max > 0 && s.Memory.TotalRSS > 0 && s.Pids.Limit == 40
	case *v2.Metrics:
		return s.CPU != nil && s.Memory != nil && s.Pids != nil &&
			s.CPU.UsageUsec > 0 && s.Memory.UsageLimit == 64<<20 && s.Memory.Anon > 0 && s.Pids.Limit == 40
	}
	return false
}

// docker update sends only the limits that were named. This is checked for several calls.
func TestMobyUpdates(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		task := c.running(t, []string{"testprog", "sleep", "1000"}, oci.WithMemoryLimit(64<<20))
		update := func(res *specs.LinuxResources) {
			t.Helper()
			if err := task.Update(c.context(t), containerd.WithResources(res)); err != nil {
				t.Error(err)
			}
		}
		limit, swap, reservation, pids := int64(96<<20), int64(128<<20), int64(32<<20), int64(77)
		shares, period, quota := uint64(300), uint64(100_000), int64(50_000)
		update(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit, Swap: &swap, Reservation: &reservation}})
		update(&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &pids}})
		update(&specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: &shares, Period: &period, Quota: &quota, Cpus: "0"}})
		update(&specs.LinuxResources{})
		want := map[cgroupFile]string{memoryLimit: "100663296", pidsLimit: "77", cpuSet: "0"}
		for file, value := range want {
			file.expect(t, task, value)
		}
		cgroupFile{"cpu", "cpu.cfs_quota_us", "cpu.max"}.expectOneOf(t, task, "50000", "50000 100000")
		cgroupFile{"memory", "memory.memsw.limit_in_bytes", "memory.swap.max"}.expectOneOf(t, task, "134217728", "33554432")
	})
}

// expectOneOf is expect for a file whose text differs between the versions.
func (f cgroupFile) expectOneOf(t *testing.T, task containerd.Task, v1, v2 string) {
	t.Helper()
	if got := f.read(t, task.Pid()); got != v1 && got != v2 {
		t.Errorf("%s of %s is %s, want %s or %s", f.v2, task.ID(), got, v1, v2)
	}
}

// When Docker restarts a container, it makes a new task of the same container as soon as it
// has got the exit of the last task and the answer to its Delete. A second Delete finds
// nothing. (With runc, the events of two shims of one container may arrive in the wrong order.)
func TestMobyRestartsAContainer(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		container := c.container(t, []string{"testprog", "exit", "3"})
		events := c.listen(t, container.ID())
		var want []string
		for range 5 {
			task := c.newTask(t, container, cio.NullIO)
			exited := c.wait(t, task)
			if err := task.Start(ctx); err != nil {
				t.Fatal(err)
			}
			expectExit(t, exited, 3)
			deleteTask(t, ctx, task)
			if _, err := task.Delete(ctx); !errdefs.IsNotFound(err) {
				t.Errorf("second delete: %v", err)
			}
			want = append(want, "create", "start", "exit init 3", "delete 3")
		}
		wait.Observe(t, "all events have come", func() (bool, string) {
			got := events.words()
			return slices.Equal(got, want), fmt.Sprintf("%q", got)
		})
	})
}

// snapshot returns the mounts of an image's root, of a container that is never started.
func (c *column) snapshot(t *testing.T, img containerd.Image, id string) []mount.Mount {
	t.Helper()
	ctx := c.context(t)
	info, err := c.containerOf(t, c.client, img, c.runtime, id, []string{"true"}).Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := c.client.SnapshotService(info.Snapshotter).Mounts(ctx, info.SnapshotKey)
	if err != nil {
		t.Fatal(err)
	}
	return mounts
}
