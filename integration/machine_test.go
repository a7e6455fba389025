package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// machineAccepts are the fields that the machine may ignore, because its programs cannot do what
// these fields forbid. Limits are not among them, except those that containerd sets by itself.
const machineAccepts = `accept = ["/process", "/root", "/hostname", "/mounts", "/linux/namespaces", "/linux/maskedPaths",
	"/linux/readonlyPaths", "/linux/seccomp", "/linux/sysctl", "/linux/resources/devices", "/linux/resources/cpu/shares"]
`

// machineOf makes the image of the stage1 whose apps are no processes of the host.
func machineOf(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-C", "..", "-o", filepath.Join(dir, "machine"), "./stage1/conformance/testdata/machine")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	image := filepath.Join(dir, "image")
	for _, cmd := range []*exec.Cmd{build, exec.Command(filepath.Join(dir, "machine"), append([]string{"init", image}, args...)...)} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	return image
}

// machineNode starts a containerd whose shims use the machine.
func (c *column) machineNode(t *testing.T, image string) *node {
	t.Helper()
	n := c.asideNode(t)
	n.says("default = 'machine'\n[stage1.machine]\npath = '%s'\n%s", image, machineAccepts)
	return n
}

// toldMachine has the fields of a request that these tests read.
type toldMachine struct {
	App, Netns          string
	Annotations, Labels map[string]string
	Resources           json.RawMessage
	Mounts              []struct{ Type, Source string }
}

// told returns the last request of an entrypoint that the machine of a pod has received.
func told(t *testing.T, data, entrypoint string) (r toldMachine) {
	t.Helper()
	name := "machine-" + strings.ReplaceAll(entrypoint, "/", "-")
	files, err := filepath.Glob(filepath.Join(data, "pods/run/*/stage1/rootfs/rkt", name))
	if err != nil || len(files) != 1 {
		t.Fatalf("requests %q, %v", files, err)
	}
	if err := json.Unmarshal([]byte(read(t, files[0])), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheFiguresOfAMachineAreItsOwn(t *testing.T) {
	dir := machineOf(t)
	aside(t, func(t *testing.T, c *column) {
		n := c.machineNode(t, dir)
		ctx := n.context(t)

		output := filepath.Join(t.TempDir(), "log")
		container := n.container(t, []string{"tick"}, oci.WithMemoryLimit(64<<20))
		task := n.newTask(t, container, cio.LogFile(output))
		exited := n.wait(t, task)
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if r := told(t, dataDir(n.daemon.Dir()), "app/add"); len(r.Mounts) == 0 || r.Mounts[0].Type == "" {
			t.Errorf("the machine is to mount its root of %+v", r.Mounts)
		}
		for line := range strings.Lines(read(t, "/proc/self/mountinfo")) { // other tests have containers of the same id
			if strings.Contains(line, n.daemon.Dir()) && strings.Contains(line, container.ID()+"/rootfs ") {
				t.Errorf("stage 0 has mounted the root: %s", line)
			}
		}
		written := func() int { return strings.Count(read(t, output), "\n") }
		wait.Until(t, "the program writes", func() bool { return written() > 2 })
		if err := task.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		expectStatus(t, ctx, task, containerd.Paused)
		wait.Still(t, "lines of a paused program", written)
		before := written()
		if err := task.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "the program goes on", func() bool { return written() > before })

		e, err := task.Exec(ctx, "e", process(t, ctx, task, "eat", "5"), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(ctx); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "the exec has memory", func() bool { return readFigures(t, n.column, task).memory == 5<<20 })
		if f := readFigures(t, n.column, task); f.processes != 2 || f.cpu == 0 || f.limit != 64<<20 || f.kills != 0 {
			t.Errorf("the metrics are %+v", f)
		}
		pids, err := task.Pids(ctx)
		if err != nil || len(pids) != 2 || pids[0].Pid != 1 || pids[1].Pid != 2 {
			t.Errorf("the processes are %+v, %v", pids, err)
		}
		kill(t, ctx, task, syscall.SIGKILL)
		expectExit(t, exited, 137)
		deleteTask(t, ctx, task)
	})
}

func TestAnOOMOfAMachineReachesContainerd(t *testing.T) {
	dir := machineOf(t)
	aside(t, func(t *testing.T, c *column) {
		n := c.machineNode(t, dir)
		ctx := n.context(t)
		container := n.container(t, []string{"eat", "128"}, oci.WithMemoryLimit(64<<20))
		events := n.listen(t, container.ID())
		task := n.newTask(t, container, cio.NullIO)
		exited := n.wait(t, task)
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 137)
		events.await(t, "exit init 137")
		words := events.words()
		if oom := slices.Index(words, "oom"); oom < 0 || oom > slices.Index(words, "exit init 137") {
			t.Errorf("events %q", words)
		}
		if f := readFigures(t, n.column, task); f.kills != 1 {
			t.Errorf("figures %+v", f)
		}
		deleteTask(t, ctx, task)
	})
}

func TestALimitThatAMachineDoesNotEnforceIsRefusedByName(t *testing.T) {
	dir := machineOf(t)
	aside(t, func(t *testing.T, c *column) {
		n := c.machineNode(t, dir)
		r := n.run(t, []string{"--rm", "--cpus", "1"}, n.id(), "exit", "0")
		if want := "asks for /linux/resources/cpu/quota, which stage1 machine does not support"; r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("code %d: %s", r.code, r.stderr)
		}
		if r := n.run(t, []string{"--rm", "--memory-limit", "67108864"}, n.id(), "exit", "7"); r.code != 7 {
			t.Errorf("with a limit that it enforces: code %d: %s", r.code, r.stderr)
		}
		task := n.running(t, []string{"tick"})
		quota := int64(20000)
		err := task.Update(n.context(t), containerd.WithResources(&specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: &quota}}))
		if err == nil || !strings.Contains(err.Error(), "/linux/resources/cpu/quota") {
			t.Errorf("an update: %v", err)
		}
		if _, err := task.Delete(n.context(t), containerd.WithProcessKill); err != nil {
			t.Error(err)
		}
	})
}

func TestTheDeadlineOfAMachinesStartIsItsOwn(t *testing.T) {
	dir := machineOf(t, "resources processes namespaces rootfs", "run=1s")
	aside(t, func(t *testing.T, c *column) {
		n := c.machineNode(t, dir)
		r := n.run(t, []string{"--rm", "--annotation", "machine/boot=1m"}, n.id(), "exit", "0")
		if want := "run: no answer within 1s"; r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("code %d: %s", r.code, r.stderr)
		}
		n.expectNothingLeft(t)
	})
}

func TestAMachineIsToldWhenItsNetworkChanges(t *testing.T) {
	dir := machineOf(t)
	aside(t, func(t *testing.T, c *column) {
		n := c.machineNode(t, dir)
		holder := exec.Command("sleep", "1000")
		holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if err := holder.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = holder.Process.Kill()
			_ = holder.Wait()
		}()
		netns := fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid)
		task := n.running(t, []string{"tick"}, oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: netns}))
		data := dataDir(n.daemon.Dir())
		if r := told(t, data, "run"); r.Netns != netns || len(r.Annotations) == 0 && len(r.Resources) == 0 {
			t.Errorf("run is told of %q, annotations %v, resources %s", r.Netns, r.Annotations, r.Resources)
		}
		if out, err := exec.Command("nsenter", "--net="+netns, "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		wait.Until(t, "the machine is told", func() bool {
			files, _ := filepath.Glob(filepath.Join(data, "pods/run/*/stage1/rootfs/rkt/machine-network"))
			return len(files) == 1
		})
		if r := told(t, data, "network"); r.Netns != netns || r.App == "" {
			t.Errorf("network is told of %q, app %q", r.Netns, r.App)
		}
		if _, err := task.Delete(n.context(t), containerd.WithProcessKill); err != nil {
			t.Error(err)
		}
	})
}

// The pod is tested with a pause container and without one.
func TestAPodOfKubernetesInAMachine(t *testing.T) {
	needOurs(t)
	dir := machineOf(t)
	for _, d := range newDropIns[:2] {
		t.Run(d.sandboxer, func(t *testing.T) {
			t.Parallel()
			n := newStage1Node(t, d, "default = 'machine'\n[stage1.machine]\npath = '"+dir+"'\n"+machineAccepts)
			config := n.config(map[string]string{"team": "a"})
			config.Labels = map[string]string{"tier": "back"}
			config.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 64 << 20}
			id, err := n.runPod(config)
			if err != nil {
				t.Fatal(err)
			}
			r := told(t, dataDir(n.Dir()), "run")
			if !strings.Contains(string(r.Resources), "67108864") || d.sandboxer == "shim" && (r.Labels["tier"] != "back" || r.Annotations["team"] != "a") {
				t.Errorf("run is told of resources %s, labels %v, annotations %v", r.Resources, r.Labels, r.Annotations)
			}
			made, err := n.runtime.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
				PodSandboxId: id, SandboxConfig: config, Config: &runtimeapi.ContainerConfig{
					Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: image.BusyboxName},
					Command: []string{"eat", "5"},
					Linux:   &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 32 << 20}},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := n.runtime.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
				t.Fatal(err)
			}
			wait.Observe(t, "CRI has the machine's memory", func() (bool, string) {
				s, err := n.runtime.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: made.ContainerId})
				used := s.GetStats().GetMemory().GetWorkingSetBytes().GetValue()
				return err == nil && used == 5<<20, fmt.Sprintf("%d bytes, %v", used, err)
			})
			n.removePod(id)
			n.expectNothing("the pod")
		})
	}
}
