package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	sandboxapi "github.com/containerd/containerd/api/runtime/sandbox/v1"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// box is a sandbox that containerd's shim controller has made, as for CRI.
type box struct {
	*column
	id         string
	controller sandbox.Controller
	pid        int // of the process that holds its namespaces
}

// createBox creates a sandbox and does not start it.
func (c *column) createBox(t *testing.T, config *cri.PodSandboxConfig, opts ...sandbox.CreateOpt) *box {
	t.Helper()
	ctx := c.context(t)
	b := &box{column: c, id: c.id(), controller: c.client.SandboxController("shim")}
	record := sandbox.Sandbox{ID: b.id, Sandboxer: "shim", Runtime: sandbox.RuntimeOpts{Name: c.runtime}}
	if _, err := c.client.SandboxStore().Create(ctx, record); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.remove(t) })
	if config != nil {
		opts = append(opts, sandbox.WithOptions(config))
	}
	if err := b.controller.Create(ctx, record, opts...); err != nil {
		t.Fatalf("create sandbox: %v", err)
	}
	return b
}

// startBox makes a sandbox and starts it.
func (c *column) startBox(t *testing.T, config *cri.PodSandboxConfig) *box {
	t.Helper()
	b := c.createBox(t, config)
	b.start(t)
	return b
}

func (b *box) start(t *testing.T) {
	t.Helper()
	instance, err := b.controller.Start(b.context(t), b.id)
	if err != nil {
		t.Fatalf("start sandbox: %v", err)
	}
	b.pid = int(instance.Pid)
}

// remove removes the sandbox, unless the test has done so.
func (b *box) remove(t *testing.T) {
	t.Helper()
	ctx := b.context(t)
	// containerd may not know yet that a shim was killed.
	wait.Observe(t, "sandbox "+b.id+" is shut down", func() (bool, string) {
		err := b.controller.Shutdown(ctx, b.id)
		return err == nil || strings.Contains(err.Error(), "not found"), fmt.Sprint(err)
	})
	if err := b.client.SandboxStore().Delete(ctx, b.id); err != nil && !strings.Contains(err.Error(), "not found") {
		t.Errorf("forget sandbox %s: %v", b.id, err)
	}
}

// joins makes a container join namespaces of the sandbox, like containers of CRI.
func (b *box) joins(types ...specs.LinuxNamespaceType) oci.SpecOpts {
	files := map[specs.LinuxNamespaceType]string{specs.NetworkNamespace: "net"}
	var opts []oci.SpecOpts
	for _, ns := range types {
		file := files[ns]
		if file == "" {
			file = string(ns)
		}
		opts = append(opts, oci.WithLinuxNamespace(specs.LinuxNamespace{Type: ns, Path: fmt.Sprintf("/proc/%d/ns/%s", b.pid, file)}))
	}
	return oci.Compose(opts...)
}

// member makes a container in the sandbox, and creates its task.
func (b *box) member(t *testing.T, args []string, opts ...oci.SpecOpts) containerd.Task {
	t.Helper()
	task, err := b.tryMember(t, args, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// tryMember is member for a Create that may fail. If it fails, nothing of the container is
// left.
func (b *box) tryMember(t *testing.T, args []string, opts ...oci.SpecOpts) (containerd.Task, error) {
	t.Helper()
	ctx, id := b.context(t), b.column.id()
	img := b.image(t, b.client)
	all := append([]oci.SpecOpts{oci.WithImageConfig(img), oci.WithDefaultUnixDevices, oci.WithProcessArgs(args...),
		b.joins(specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace)}, opts...)
	container, err := b.client.NewContainer(ctx, id, containerd.WithNewSnapshot(id, img),
		containerd.WithNewSpec(all...), containerd.WithRuntime(b.runtime, nil), containerd.WithSandbox(b.id))
	if err != nil {
		t.Fatal(err)
	}
	task, err := container.NewTask(ctx, cio.NullIO)
	if err != nil {
		if err := container.Delete(ctx, containerd.WithSnapshotCleanup); err != nil {
			t.Error(err)
		}
	}
	return task, err
}

// runMember is member, and starts the task.
func (b *box) runMember(t *testing.T, args []string, opts ...oci.SpecOpts) containerd.Task {
	t.Helper()
	task := b.member(t, args, opts...)
	if err := task.Start(b.context(t)); err != nil {
		t.Fatal(err)
	}
	return task
}

// platform sends the shim the call that CRI makes before it makes a container.
func (b *box) platform(t *testing.T) {
	t.Helper()
	shim := b.dialShim(t, b.bundle())
	defer shim.client.Close()
	r, err := sandboxapi.NewTTRPCSandboxClient(shim.client).Platform(b.context(t), &sandboxapi.PlatformRequest{SandboxID: b.id})
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Platform; p.OS != "linux" || p.Architecture != runtime.GOARCH {
		t.Errorf("platform %v", p)
	}
}

func (b *box) bundle() string {
	return filepath.Join(b.daemon.Dir(), "state/io.containerd.sandbox.controller.v1.shim", b.daemon.Namespace(), b.id)
}

// namespace returns the identity of a namespace of a process.
func namespace(t *testing.T, pid int, kind string) string {
	t.Helper()
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func TestASandboxRunsContainersWithoutAPauseContainer(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		b := c.startBox(t, nil)
		first := b.runMember(t, []string{"testprog", "sleep", "1000"})
		second := b.runMember(t, []string{"testprog", "sleep", "1000"})
		for _, task := range []containerd.Task{first, second} {
			for _, kind := range []string{"net", "ipc", "uts"} {
				if ours, theirs := namespace(t, int(task.Pid()), kind), namespace(t, b.pid, kind); ours != theirs {
					t.Errorf("%s namespace of a container: %s, of its sandbox: %s", kind, ours, theirs)
				}
				if namespace(t, b.pid, kind) == namespace(t, os.Getpid(), kind) {
					t.Errorf("the sandbox has the host's %s namespace", kind)
				}
			}
		}
		shim := c.shimOf(t, b.bundle(), b.id)
		if other := c.shim(t, first.ID()); other != shim { // requirements.md#G2
			t.Errorf("shims %d and %d in one pod", shim, other)
		}
		exited := c.wait(t, first)
		kill(t, ctx, first, syscall.SIGKILL)
		expectExit(t, exited, 137)
		c.drop(t, first)
		exited = c.wait(t, second)
		kill(t, ctx, second, syscall.SIGKILL)
		expectExit(t, exited, 137)
		c.drop(t, second)
		// The sandbox goes on without containers.
		st, err := b.controller.Status(ctx, b.id, true)
		if err != nil || st.State != "SANDBOX_READY" || int(st.Pid) != b.pid {
			t.Errorf("status %+v, %v", st, err)
		}
		third := b.runMember(t, []string{"testprog", "exit", "5"})
		expectExit(t, c.wait(t, third), 5)
		c.drop(t, third)
		if err := b.controller.Stop(ctx, b.id); err != nil {
			t.Fatal(err)
		}
		if err := b.controller.Shutdown(ctx, b.id); err != nil {
			t.Fatal(err)
		}
		wait.Observe(t, "the sandbox's shim has ended", func() (bool, string) {
			_, err := os.Stat(fmt.Sprintf("/proc/%d", shim))
			return err != nil, ""
		})
	})
}

// withNetwork makes a network namespace for the sandbox, as CRI does before it makes the
// sandbox. With users the network namespace is in a user namespace of its own.
func withNetwork(t *testing.T, users ...syscall.SysProcIDMap) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "netns")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "echo; read x")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, UidMappings: users, GidMappings: users}
	if len(users) > 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 1))
	}
	if err == nil {
		err = unix.Mount(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid), path, "", unix.MS_BIND, "")
	}
	_ = in.Close()
	_ = cmd.Wait() // it fails because it reads no line
	if err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return path
}

func TestASandboxOfCRIHasItsFilesNamesAndLimits(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		parent := "/" + c.daemon.Namespace() + "/pod"
		netns := withNetwork(t)
		b := c.createBox(t, &cri.PodSandboxConfig{
			Hostname:  "blue",
			DnsConfig: &cri.DNSConfig{Servers: []string{"192.0.2.1"}},
			Linux: &cri.LinuxPodSandboxConfig{
				CgroupParent: parent,
				Sysctls:      map[string]string{"kernel.msgmax": "4711"},
			},
		}, sandbox.WithNetNSPath(netns))
		t.Cleanup(func() { removeCgroup(t, parent) })
		t.Cleanup(func() { b.remove(t) })
		b.start(t)
		b.platform(t)
		st, err := os.Stat(netns)
		held, err2 := os.Stat(fmt.Sprintf("/proc/%d/ns/net", b.pid))
		if err != nil || err2 != nil || !os.SameFile(st, held) {
			t.Errorf("the sandbox is not in its network namespace: %v, %v", err, err2)
		}
		dir := c.daemon.Dir()
		hosts, _ := os.ReadFile("/etc/hosts") // a machine may not have this file
		for file, want := range map[string]string{"hostname": "blue\n", "resolv.conf": "nameserver 192.0.2.1\n", "hosts": string(hosts)} {
			if got := read(t, filepath.Join(dir, "root/io.containerd.grpc.v1.cri/sandboxes", b.id, file)); got != want {
				t.Errorf("%s: %q, want %q", file, got, want)
			}
		}
		shm := filepath.Join(dir, "state/io.containerd.grpc.v1.cri/sandboxes", b.id, "shm")
		bound := oci.WithMounts([]specs.Mount{{Destination: "/dev/shm", Type: "bind", Source: shm, Options: []string{"rbind"}}})
		first := b.runMember(t, []string{"sh", "-c", "hostname; cat /proc/sys/kernel/msgmax /proc/sys/net/ipv4/ip_unprivileged_port_start; echo x >/dev/shm/y; exec sleep 1000"},
			oci.WithoutMounts("/dev/shm"), bound)
		wait.Observe(t, "containers share /dev/shm", func() (bool, string) {
			_, err := os.Stat(filepath.Join(shm, "y"))
			return err == nil, fmt.Sprint(err)
		})
		c.exec(t, nil, first.ID(), "sh", "-c", "hostname; cat /proc/sys/kernel/msgmax /proc/sys/net/ipv4/ip_unprivileged_port_start; cat /dev/shm/y").
			must(t).mustSay(t, "blue\n4711\n0\nx\n")
		m, err := b.controller.Metrics(ctx, b.id)
		if err != nil || m.ID != b.id || m.Data == nil {
			t.Errorf("metrics: %v, %v", m, err)
		}
		if here := read(t, fmt.Sprintf("/proc/%d/cgroup", b.pid)); !strings.Contains(here, parent+"/"+b.id+"\n") {
			t.Errorf("the sandbox is in %s", here)
		}
		if seccomp := statusOf(t, b.pid, "Seccomp"); seccomp != "2" {
			t.Errorf("seccomp of the holder: %s", seccomp)
		}
		if caps := statusOf(t, b.pid, "CapBnd"); caps != "0000000000000000" {
			t.Errorf("capabilities of the holder: %s", caps)
		}
		root, err := os.ReadDir(fmt.Sprintf("/proc/%d/root", b.pid))
		if err != nil || len(root) != 3 {
			t.Errorf("the holder sees %v, %v", root, err)
		}
		exited := c.wait(t, first)
		if err := b.controller.Stop(ctx, b.id); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 137)
		c.drop(t, first)
	})
}

// removeCgroup removes a cgroup, as the kubelet does.
func removeCgroup(t *testing.T, path string) {
	t.Helper()
	dirs, err := filepath.Glob("/sys/fs/cgroup/*" + path)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(dirs, "/sys/fs/cgroup"+path) {
		if err := os.Remove(dir); err != nil && !os.IsNotExist(err) {
			t.Errorf("the pod's cgroup is not empty: %v", err)
		}
	}
}

// statusOf returns a field of a process's status.
func statusOf(t *testing.T, pid int, field string) string {
	t.Helper()
	for line := range strings.SplitSeq(read(t, fmt.Sprintf("/proc/%d/status", pid)), "\n") {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	t.Fatalf("process %d has no %s", pid, field)
	return ""
}

func TestASandboxWhoseHolderIsKilledHasEnded(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		b := c.startBox(t, nil)
		task := b.runMember(t, []string{"testprog", "sleep", "1000"})
		exited := c.wait(t, task)
		ended := make(chan sandbox.ExitStatus, 1)
		ctx := c.context(t)
		go func() {
			s, err := b.controller.Wait(ctx, b.id)
			if err != nil {
				t.Error(err)
			}
			ended <- s
		}()
		if err := syscall.Kill(b.pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 137)
		if s := wait.For(t, "the return of WaitSandbox", ended); s.ExitStatus != 137 {
			t.Errorf("exit %+v", s)
		}
		if st, err := b.controller.Status(c.context(t), b.id, false); err != nil || st.State != "SANDBOX_NOTREADY" {
			t.Errorf("status %+v, %v", st, err)
		}
		if _, err := b.tryMember(t, []string{"testprog", "exit", "0"}); err == nil {
			t.Error("a container was made in a sandbox that has ended")
		}
		c.drop(t, task)
	})
}

func TestAKilledShimLeavesNothingOfItsSandbox(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		b := c.startBox(t, &cri.PodSandboxConfig{Hostname: "blue"})
		task := b.runMember(t, []string{"testprog", "sleep", "1000"})
		pids := []int{b.pid, int(task.Pid())}
		if err := syscall.Kill(c.shimOf(t, b.bundle(), b.id), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		wait.Observe(t, "the pod's processes have ended", func() (bool, string) {
			for _, pid := range pids {
				if syscall.Kill(pid, 0) == nil {
					return false, fmt.Sprint(pid)
				}
			}
			return true, ""
		})
		st, err := b.controller.Status(ctx, b.id, false)
		if err == nil && st.State == "SANDBOX_READY" {
			t.Errorf("status %+v", st)
		}
		container, err := c.client.LoadContainer(ctx, task.ID())
		if err != nil {
			t.Fatal(err)
		}
		if err := container.Delete(ctx, containerd.WithSnapshotCleanup); err != nil {
			t.Fatal(err)
		}
	})
}

func TestASandboxIsThereAfterARestartOfContainerd(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, shared *column) {
		c := secondDaemon(t, shared)
		b := c.startBox(t, &cri.PodSandboxConfig{Hostname: "blue"})
		first := b.runMember(t, []string{"testprog", "sleep", "1000"})
		c.restart(t, nil)
		ctx := c.context(t)
		b.controller = c.client.SandboxController("shim")
		st, err := b.controller.Status(ctx, b.id, false)
		if err != nil || st.State != "SANDBOX_READY" || int(st.Pid) != b.pid {
			t.Fatalf("status %+v, %v", st, err)
		}
		c.exec(t, nil, first.ID(), "echo", "still here").must(t).mustSay(t, "still here\n")
		// When CRI starts, it removes everything that it has no record of.
		links := filepath.Join(c.daemon.Dir(), "root/io.containerd.grpc.v1.cri/sandboxes", b.id)
		if err := os.RemoveAll(links); err != nil {
			t.Fatal(err)
		}
		b.platform(t)
		if got := read(t, filepath.Join(links, "hostname")); got != "blue\n" {
			t.Errorf("hostname: %q", got)
		}
		second := b.runMember(t, []string{"testprog", "exit", "7"})
		expectExit(t, c.wait(t, second), 7)
		c.drop(t, second)
		// The sandbox has a running container and one that was not deleted.
		if err := b.controller.Shutdown(ctx, b.id); err != nil {
			t.Fatal(err)
		}
		wait.Observe(t, "its containers have ended", func() (bool, string) {
			err := syscall.Kill(int(first.Pid()), 0)
			return err != nil, fmt.Sprint(err)
		})
	})
}

func TestTheFirstProcessOfASharedPIDNamespaceReaps(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		b := c.startBox(t, nil)
		task := b.runMember(t, []string{"sh", "-c", "(sleep 0.1 & echo $! >/child); exec sleep 1000"}, b.joins(specs.PIDNamespace))
		if namespace(t, int(task.Pid()), "pid") != namespace(t, b.pid, "pid") {
			t.Fatal("the PID namespace is not shared")
		}
		// The parent of this child ends first, so the holder becomes its parent.
		c.exec(t, nil, task.ID(), "sh", "-c", `until [ -s /child ]; do sleep 0.02; done; pid=$(cat /child); for i in $(seq 1000); do [ -e /proc/$pid ] || exit 0; sleep 0.02; done; cat /proc/$pid/status; exit 1`).must(t)
		exited := c.wait(t, task)
		kill(t, c.context(t), task, syscall.SIGKILL)
		expectExit(t, exited, 137)
		c.drop(t, task)
		if st, err := b.controller.Status(c.context(t), b.id, false); err != nil || st.State != "SANDBOX_READY" {
			t.Errorf("status %+v, %v", st, err)
		}
	})
}

func TestASandboxCanShareWhatItsHostHas(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		node := cri.NamespaceMode_NODE
		b := c.startBox(t, &cri.PodSandboxConfig{Linux: &cri.LinuxPodSandboxConfig{
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{Network: node, Pid: node, Ipc: node}},
		}})
		for _, kind := range []string{"net", "uts", "ipc", "pid", "user"} {
			if namespace(t, b.pid, kind) != namespace(t, os.Getpid(), kind) {
				t.Errorf("the sandbox has a %s namespace of its own", kind)
			}
		}
		task := b.runMember(t, []string{"testprog", "exit", "0"})
		expectExit(t, c.wait(t, task), 0)
		c.drop(t, task)
	})
}

func TestClientsMakeSandboxesWithTheirOwnSpec(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		id := c.id()
		spec := &oci.Spec{Hostname: "green", Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.UTSNamespace}}}}
		s, err := c.client.NewSandbox(ctx, id, containerd.WithSandboxRuntime(c.runtime, nil), containerd.WithSandboxSpec(spec))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(ctx); err != nil {
			t.Fatal(err)
		}
		exited, err := s.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 0)
		if err := s.Shutdown(ctx); err != nil {
			t.Fatal(err)
		}
	})
}

func TestASandboxThatCannotBeMadeLeavesNothing(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		for _, config := range []*cri.PodSandboxConfig{
			{Linux: &cri.LinuxPodSandboxConfig{Sysctls: map[string]string{"vm.swappiness": "1"}}},
			{Annotations: map[string]string{"io.containerd.rkt.v1/stage2": "x"}},
		} {
			b := &box{column: c, id: c.id(), controller: c.client.SandboxController("shim")}
			record := sandbox.Sandbox{ID: b.id, Sandboxer: "shim", Runtime: sandbox.RuntimeOpts{Name: c.runtime}}
			if _, err := c.client.SandboxStore().Create(ctx, record); err != nil {
				t.Fatal(err)
			}
			err := b.controller.Create(ctx, record, sandbox.WithOptions(config))
			if err == nil {
				_, err = b.controller.Start(ctx, b.id)
			}
			if err == nil {
				t.Errorf("a sandbox was made of %v", config)
			}
			if err := c.client.SandboxStore().Delete(ctx, b.id); err != nil {
				t.Error(err)
			}
			c.expectNothingLeft(t)
		}
	})
}

func TestASandboxWithUsersOfItsOwn(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		if !slices.Contains(c.features(t).Linux.Namespaces, "user") {
			t.Skip("the stage1 declares no user namespaces")
		}
		users := []*cri.IDMapping{{ContainerId: 0, HostId: 100000, Length: 65536}}
		for name, network := range map[string]cri.NamespaceMode{"a network of its own": cri.NamespaceMode_POD, "the host's network": cri.NamespaceMode_NODE} {
			t.Run(name, func(t *testing.T) {
				var opts []sandbox.CreateOpt
				if network == cri.NamespaceMode_POD {
					opts = append(opts, sandbox.WithNetNSPath(withNetwork(t, syscall.SysProcIDMap{HostID: 100000, Size: 65536})))
				}
				b := c.createBox(t, &cri.PodSandboxConfig{Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{
					NamespaceOptions: &cri.NamespaceOption{Network: network, UsernsOptions: &cri.UserNamespace{Uids: users, Gids: users}},
				}}}, opts...)
				b.start(t)
				t.Cleanup(func() { b.remove(t) }) // before its network is removed
				if m := strings.Join(strings.Fields(read(t, fmt.Sprintf("/proc/%d/uid_map", b.pid))), " "); m != "0 100000 65536" {
					t.Errorf("users of the sandbox: %s", m)
				}
				if uid := statusOf(t, b.pid, "Uid"); !strings.HasPrefix(uid, "165535\t") { // user 65535 of the pod's namespace
					t.Errorf("the holder runs as %s", uid)
				}
				expectUndumpable(t, b.pid)
			})
		}
	})
}

// requirements.md#R4
func TestASandboxThatContainerdHasNoRecordOfGoesAtItsRestart(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, shared *column) {
		c := secondDaemon(t, shared)
		b := c.startBox(t, nil)
		if err := c.client.SandboxStore().Delete(c.context(t), b.id); err != nil {
			t.Fatal(err)
		}
		c.restart(t, nil)
		wait.Observe(t, "its holder has ended", func() (bool, string) {
			err := syscall.Kill(b.pid, 0)
			return err != nil, fmt.Sprint(err)
		})
		wait.Observe(t, "its bundle has gone", func() (bool, string) {
			_, err := os.Stat(b.bundle())
			return err != nil, fmt.Sprint(err)
		})
		b.controller = c.client.SandboxController("shim")
	})
}
