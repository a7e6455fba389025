package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

func plugins() section {
	return section{"Plugins of NRI", []feature{
		{"arguments, environment, mounts, devices, rlimits, OOM score", adjustedProcess},
		{"annotations, and hooks of every kind", adjustedHooks},
		{"limits, and the path of the cgroup", adjustedCgroup},
		{"CDI devices that a plugin asks for", adjustedCDI},
		{"updates: asked for, of other containers, unsolicited", pluginUpdates},
	}}
}

// plugin is a plugin of NRI that is connected to a column's node while a test runs. Its
// functions create and update, which may be nil, answer containerd's requests.
type plugin struct {
	create func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate)
	update func(*api.Container) []*api.ContainerUpdate
	// known is closed when containerd has told the plugin what it has.
	known chan struct{}
}

func (p *plugin) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	close(p.known)
	return nil, nil
}

func (p *plugin) CreateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	if p.create == nil {
		return nil, nil, nil
	}
	adjust, update := p.create(c)
	return adjust, update, nil
}

func (p *plugin) UpdateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container, _ *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	if p.update == nil {
		return nil, nil
	}
	return p.update(c), nil
}

// connect connects a plugin until the test ends. The test must not have a pod yet: containerd asks
// a new plugin about containers only a moment after it has told the plugin what it has.
func (c *column) connect(t *testing.T, p *plugin) stub.Stub {
	t.Helper()
	p.known = make(chan struct{})
	s, err := stub.New(p, stub.WithPluginName("test"), stub.WithPluginIdx("00"), stub.WithSocketPath(c.node.NRI()))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(testContext(t)); err != nil {
		t.Fatalf("connect to NRI: %v", err)
	}
	wait.For(t, "containerd knows the plugin", p.known)
	t.Cleanup(func() {
		s.Stop()
		s.Wait()
	})
	return s
}

// adjusts connects a plugin that makes one adjustment of every container.
func (c *column) adjusts(t *testing.T, edit func(id string, a *api.ContainerAdjustment)) {
	t.Helper()
	c.connect(t, &plugin{create: func(created *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate) {
		a := &api.ContainerAdjustment{}
		edit(created.GetId(), a)
		return a, nil
	}})
}

// What a process finds is what the plugin has asked for, and not what CRI's client has.
func adjustedProcess(t *testing.T, c *column) {
	given := t.TempDir()
	if err := os.WriteFile(filepath.Join(given, "f"), []byte("given\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	script := `echo $ADDED, $CHANGED; ulimit -n; ulimit -Hn; cat /proc/self/oom_score_adj
cat /given/f; touch /given/g 2>/dev/null || echo read-only; ls -d /volume 2>/dev/null
stat -c '%F %t:%T %a %u:%g' /dev/given; : </dev/given && echo opened; true`
	c.adjusts(t, func(_ string, a *api.ContainerAdjustment) {
		a.SetArgs(sh(script))
		a.AddEnv("ADDED", "added")
		a.RemoveEnv("CHANGED")
		a.AddEnv("CHANGED", "changed")
		a.AddMount(&api.Mount{Source: given, Destination: "/given", Type: "bind", Options: []string{"bind", "ro", "nosuid"}})
		a.RemoveMount("/volume")
		a.AddDevice(&api.LinuxDevice{Path: "/dev/given", Type: "c", Major: 10, Minor: 229,
			FileMode: api.FileMode(os.FileMode(0o640)), Uid: api.UInt32(uint32(1000)), Gid: api.UInt32(uint32(50))})
		a.AddRlimit("RLIMIT_NOFILE", 200, 100)
		score := 654
		a.SetLinuxOomScoreAdj(&score)
	})
	p := c.pod(t)
	out := p.output("a", []string{"/bin/false"}, mounted(volume(t, p)), func(config *runtimeapi.ContainerConfig) {
		config.Envs = []*runtimeapi.KeyValue{{Key: "CHANGED", Value: []byte("old")}}
		config.Linux.Resources.OomScoreAdj = 321
	})
	want := "added, changed\n100\n200\n654\ngiven\nread-only\ncharacter special file a:e5 640 1000:50\nopened\n"
	if out != want {
		t.Errorf("it wrote:\n%s\nwant:\n%s", out, want)
	}
}

// A hook reads the container's annotations in the state that it gets.
func adjustedHooks(t *testing.T, c *column) {
	order := []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}
	switch {
	case c.isRunc(): // it runs poststart hooks before the program starts
		order = []string{"prestart", "createRuntime", "createContainer", "poststart", "startContainer", "poststop"}
	case c.usesRunc():
		order = slices.DeleteFunc(order, func(kind string) bool { return kind == "poststart" })
		c.remark("the stage1 oci refuses `poststart` hooks by name; the others run")
	}
	dir := t.TempDir()
	c.adjusts(t, func(_ string, a *api.ContainerAdjustment) {
		hook := func(kind, dir string) []*api.Hook {
			if !slices.Contains(order, kind) {
				return nil
			}
			return []*api.Hook{{
				Path: "/bin/sh",
				Args: []string{"sh", "-c", `cat >"$DIR/$0" && echo "$0" >>"$DIR/order"`, kind},
				Env:  []string{"DIR=" + dir, "PATH=/bin"},
			}}
		}
		a.AddAnnotation("rkt.test/given", "by a plugin")
		a.AddMount(&api.Mount{Source: dir, Destination: "/hooks", Type: "bind", Options: []string{"rbind", "rw"}})
		a.AddHooks(&api.Hooks{
			Prestart:        hook("prestart", dir),
			CreateRuntime:   hook("createRuntime", dir),
			CreateContainer: hook("createContainer", dir),
			StartContainer:  hook("startContainer", "/hooks"), // in the container
			Poststart:       hook("poststart", dir),
			Poststop:        hook("poststop", dir),
		})
	})
	expect := func(kinds []string) {
		t.Helper()
		wait.Observe(t, fmt.Sprintf("the hooks %q have run", kinds), func() (bool, string) {
			b, err := os.ReadFile(filepath.Join(dir, "order"))
			return err == nil && slices.Equal(lines(string(b)), kinds), string(b)
		})
	}
	one := c.pod(t).run("a", forever())
	expect(order[:len(order)-1])
	one.stop(0)
	one.remove()
	expect(order)
	for _, kind := range order {
		var state specs.State
		b, err := os.ReadFile(filepath.Join(dir, kind))
		if err == nil {
			err = json.Unmarshal(b, &state)
		}
		if err != nil || state.ID != one.id || state.Annotations["rkt.test/given"] != "by a plugin" {
			t.Errorf("%s read %s (%v)", kind, b, err)
		}
	}
}

func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Limits are in the files of the cgroup that the plugin has named.
func adjustedCgroup(t *testing.T, c *column) {
	var parent string
	c.adjusts(t, func(id string, a *api.ContainerAdjustment) {
		a.SetLinuxMemoryLimit(64 << 20)
		a.SetLinuxCPUPeriod(100000)
		a.SetLinuxCPUQuota(50000)
		a.SetLinuxCPUShares(512)
		a.SetLinuxCPUSetCPUs("0")
		a.SetLinuxPidLimits(77)
		path := filepath.Join(parent, "given-"+id)
		if c.systemd {
			path = strings.Join([]string{filepath.Base(parent), "given", id}, ":")
		}
		a.SetLinuxCgroupsPath(path)
	})
	p := c.pod(t)
	parent = p.config.GetLinux().GetCgroupParent()
	one := p.run("a", forever(), limited(func(r *runtimeapi.LinuxContainerResources) { r.MemoryLimitInBytes = 96 << 20 }))
	one.path = filepath.Join(parent, "given-"+one.id)
	if c.systemd {
		one.path = filepath.Join(parent, "given-"+one.id+".scope")
		if !c.isRunc() {
			one.path = filepath.Join(one.path, "app")
		}
	}
	one.expectCgroup(map[string]string{
		"memory/memory.limit_in_bytes": "67108864", "cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000",
		"cpu/cpu.shares": "512", "cpuset/cpuset.cpus": "0", "pids/pids.max": "77",
	}, map[string]string{"memory.max": "67108864", "cpu.max": "50000 100000", "cpuset.cpus": "0", "pids.max": "77"})
	if pids := one.read(controllerOf("pids"), "cgroup.procs"); pids == "" {
		t.Error("no process is in the cgroup that the plugin has named")
	}
	if out := one.exec("cat", "/proc/self/cgroup"); !unified() && !strings.Contains(out, "given-"+one.id) {
		t.Errorf("an exec is in\n%s", out)
	}
	// CRI's own path of the container's cgroup is not used.
	usual := &container{pod: p, id: one.id, config: one.config}
	if _, err := os.Stat(cgroupDir(t, controllerOf("pids"), usual.cgroup())); !os.IsNotExist(err) {
		t.Errorf("there is also the cgroup of CRI: %v", err)
	}
}

// controllerOf is the name of a controller's hierarchy.
func controllerOf(name string) string {
	if unified() {
		return ""
	}
	return name
}

func adjustedCDI(t *testing.T, c *column) {
	dir := c.writeCDI(t)
	c.adjusts(t, func(_ string, a *api.ContainerAdjustment) { a.AddCDIDevice(&api.CDIDevice{Name: cdiDevice}) })
	c.pod(t).expectCDI(dir, func(*runtimeapi.ContainerConfig) {})
}

// A plugin changes what the kubelet asks for, changes other containers at the same time, and
// changes containers when nothing else happens.
func pluginUpdates(t *testing.T, c *column) {
	little := limited(func(r *runtimeapi.LinuxContainerResources) { r.MemoryLimitInBytes = 64 << 20 })
	memory := func(of *container, mib int64) *api.ContainerUpdate {
		u := &api.ContainerUpdate{}
		u.SetContainerId(of.id)
		u.SetLinuxMemoryLimit(mib << 20)
		return u
	}
	expect := func(of *container, mib int64) {
		t.Helper()
		limit := fmt.Sprint(mib << 20)
		of.expectCgroup(map[string]string{"memory/memory.limit_in_bytes": limit}, map[string]string{"memory.max": limit})
	}
	var one, other *container
	s := c.connect(t, &plugin{
		update: func(*api.Container) []*api.ContainerUpdate {
			more := memory(other, 72)
			more.SetLinuxCPUQuota(30000)
			more.SetLinuxCPUPeriod(100000)
			return []*api.ContainerUpdate{memory(one, 80), more}
		},
		create: func(created *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate) {
			if created.GetName() != "c" {
				return nil, nil
			}
			return nil, []*api.ContainerUpdate{memory(one, 88)}
		},
	})
	p := c.pod(t)
	one, other = p.run("a", forever(), little), p.run("b", forever(), little)
	if err := c.runtime.UpdateContainerResources(testContext(t), one.id, &runtimeapi.ContainerResources{
		Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 96 << 20, CpuQuota: 70000, CpuPeriod: 100000},
	}); err != nil {
		t.Fatal(err)
	}
	expect(one, 80)
	expect(other, 72)
	one.expectCgroup(map[string]string{"cpu/cpu.cfs_quota_us": "70000"}, map[string]string{"cpu.max": "70000 100000"})
	other.expectCgroup(map[string]string{"cpu/cpu.cfs_quota_us": "30000"}, map[string]string{"cpu.max": "30000 100000"})

	p.run("c", forever())
	expect(one, 88)
	expect(other, 72)

	if failed, err := s.UpdateContainers([]*api.ContainerUpdate{memory(one, 56), memory(other, 48)}); err != nil || len(failed) > 0 {
		t.Errorf("unsolicited: %v, failed %v", err, failed)
	}
	expect(one, 56)
	expect(other, 48)
	impossible := memory(one, 60)
	impossible.SetLinuxCPUSetCPUs("4000")
	if failed, err := s.UpdateContainers([]*api.ContainerUpdate{impossible}); err == nil && len(failed) == 0 {
		t.Error("a container was given a processor that is not there")
	}
	if !c.isRunc() { // runc leaves the limits that it has set before the one that failed
		expect(one, 56)
	}
	one.expectRunning()
	other.expectRunning()
}
