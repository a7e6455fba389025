package pod

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// newNetns starts a process with a network namespace of its own, and returns its pid.
func newNetns(w *world) int {
	w.t.Helper()
	release := w.cfg.Children.Expect()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	err := cmd.Start()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		release()
	})
	return cmd.Process.Pid
}

// change runs ip in the network namespace of a process.
func change(w *world, pid int, args ...string) {
	w.t.Helper()
	defer w.cfg.Children.Expect()()
	out, err := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(pid), "-n", "ip"}, args...)...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
}

func (w *world) createIn(id string, pid int) {
	w.t.Helper()
	bundle := w.t.TempDir()
	if err := os.Mkdir(filepath.Join(bundle, "rootfs"), 0o711); err != nil {
		w.t.Fatal(err)
	}
	w.stage1.script(id, "sleep 1000")
	_, err := w.CreateApp(w.t.Context(), AppConfig{
		ID: AppID(id), Bundle: bundle, Rootfs: bareRoot{}, Stdio: &noStdio{},
		Spec: readSpec(w.t, fmt.Sprintf(`{"ociVersion":"1.1.0","process":{"args":["sh"],"cwd":"/"},"root":{"path":"rootfs"},
			"linux":{"namespaces":[{"type":"network","path":"/proc/%d/ns/net"}]}}`, pid)),
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestAStage1IsToldOfChangesOfTheNetwork(t *testing.T) {
	w := newWorld(t)
	w.stage1.has[abi.Network] = true
	pid := newNetns(w)
	w.createIn("a", pid)
	w.createIn("b", pid) // of the same namespace, which is watched once
	if calls := w.stage1.callsOf(abi.Network); len(calls) > 0 {
		t.Errorf("the stage1 was told of changes that were not: %+v", calls)
	}
	change(w, pid, "link", "set", "lo", "up")
	told := func(n int) func() bool { return func() bool { return len(w.stage1.callsOf(abi.Network)) >= n } }
	wait.Until(t, "the stage1 is told that lo is up", told(1))
	call := w.stage1.callsOf(abi.Network)[0]
	if want := fmt.Sprintf("/proc/%d/ns/net", pid); call.App != w.appName("a") || call.Netns != want {
		t.Errorf("the call is of app %q and %q, want %q and %q", call.App, call.Netns, w.appName("a"), want)
	}
	wait.Still(t, "calls", func() int { return len(w.stage1.callsOf(abi.Network)) })
	before := len(w.stage1.callsOf(abi.Network))
	change(w, pid, "address", "add", "192.0.2.7/32", "dev", "lo")
	wait.Until(t, "the stage1 is told of the address", told(before+1))
	w.end("a")
	w.end("b")
	if left := netlinkSockets(t); left > 0 {
		t.Errorf("%d netlink sockets are left", left)
	}
}

// Each call of an entrypoint writes to the pod's directory, so a call that is under way when the
// pod ends is ended before the directory is removed.
func TestThePodIsRemovedAfterTheCallThatTellsOfItsNetwork(t *testing.T) {
	w := newWorld(t)
	w.stage1.has[abi.Network] = true
	ended := make(chan []string, 1)
	w.stage1.on(abi.Network, func(c *fakeCall) error {
		<-c.ctx.Done()
		time.Sleep(20 * time.Millisecond) // for a removal that does not wait
		select {
		case ended <- append(w.podDirs("run"), w.podDirs("exited-garbage")...):
		default: // lo has changed more than once
		}
		return c.ctx.Err()
	})
	pid := newNetns(w)
	w.createIn("a", pid)
	change(w, pid, "link", "set", "lo", "up")
	wait.Until(t, "the stage1 is told", func() bool { return w.stage1.called(abi.Network) })
	w.end("a")
	if dirs := wait.For(t, "the end of the call", ended); len(dirs) != 1 {
		t.Errorf("at the end of the call the directories of pods are %q, want one", dirs)
	}
	wait.Until(t, "the pod is removed", func() bool { return len(w.podDirs("run"))+len(w.podDirs("exited-garbage")) == 0 })
}

func TestAStage1WithoutTheEntrypointIsNotToldOfTheNetwork(t *testing.T) {
	w := newWorld(t)
	pid := newNetns(w)
	w.createIn("a", pid)
	if n := netlinkSockets(t); n > 0 {
		t.Errorf("%d netlink sockets", n)
	}
	w.end("a")
}

// netlinkSockets counts the netlink sockets of this process that listen to changes of a network.
func netlinkSockets(t *testing.T) (n int) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		fd, _ := strconv.Atoi(f.Name())
		domain, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, 39) // SO_DOMAIN
		if err == nil && domain == syscall.AF_NETLINK {
			n++
		}
	}
	return n
}

func TestRunIsToldOfThePod(t *testing.T) {
	w := newWorld(t)
	w.create("a", "sleep 1000")
	w.end("a")
	if r := w.stage1.callsOf(abi.Run)[0]; r.Netns != "" || r.PodCgroup != nil {
		t.Errorf("run of a plain pod: %+v", r)
	}
	spec := readSpec(t, `{"ociVersion":"1.1.0","process":{"args":["sh"],"cwd":"/"},"root":{"path":"rootfs"},
		"annotations":{"io.kubernetes.cri.container-type":"sandbox","io.kubernetes.cri.sandbox-memory":"1048576",
			"io.kubernetes.cri.sandbox-cpu-quota":"20000","io.kubernetes.cri.sandbox-cpu-period":"100000","io.kubernetes.cri.sandbox-cpu-shares":"0"},
		"linux":{"cgroupsPath":"/`+w.cfg.Key.Namespace+`/pod7/a","resources":{"cpu":{"shares":2}},
			"namespaces":[{"type":"network","path":"/proc/self/ns/net"}]}}`)
	parent := w.makeParent("pod7")
	bundle := t.TempDir()
	if err := os.Mkdir(filepath.Join(bundle, "rootfs"), 0o711); err != nil {
		t.Fatal(err)
	}
	w.stage1.script("p", "sleep 1000")
	if _, err := w.CreateApp(t.Context(), AppConfig{ID: "p", Bundle: bundle, Rootfs: bareRoot{}, Stdio: &noStdio{}, Spec: spec}); err != nil {
		t.Fatal(err)
	}
	r := w.stage1.callsOf(abi.Run)[1]
	if r.Annotations["io.kubernetes.cri.container-type"] != "sandbox" || r.Netns != "/proc/self/ns/net" {
		t.Errorf("annotations %v, network namespace %q", r.Annotations, r.Netns)
	}
	if want := `{"memory":{"limit":1048576},"cpu":{"quota":20000,"period":100000}}`; string(r.Resources) != want {
		t.Errorf("resources %s, want %s", r.Resources, want)
	}
	if r.PodCgroup == nil || !strings.HasSuffix(r.PodCgroup.Dirs[0], "/pod7") {
		t.Errorf("the pod's cgroup is %+v", r.PodCgroup)
	}
	w.end("p")
	parent()
}

// A VM that cannot have its first app is refused before it boots.
func TestRunIsToldTheFirstAppsSpecIfTheStage1OwnsNamespaces(t *testing.T) {
	for _, own := range [][]abi.Own{nil, {abi.OwnNamespaces}} {
		w := newWorld(t)
		w.stage1.own = own
		var run Call
		w.stage1.plan[abi.Run] = []act{func(c *fakeCall) error { run = c.Call; return nil }}
		w.mustRun("a", "sleep 1000")
		if told := run.Spec != nil && run.Request.Bundle != ""; told != (own != nil) {
			t.Errorf("own %v: run is told of the bundle %q, with the spec %v", own, run.Request.Bundle, run.Spec)
		}
		if w.session.origin.spec != nil {
			t.Error("the session keeps the spec")
		}
		w.end("a")
	}
}

// makeParent makes a cgroup in every hierarchy, as the kubelet does for a pod. The result
// removes it.
func (w *world) makeParent(name string) (remove func()) {
	w.t.Helper()
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if len(roots) == 0 {
		roots = []string{"/sys/fs/cgroup/cgroup.procs"}
	}
	var dirs []string
	for _, root := range roots {
		dir := filepath.Join(filepath.Dir(root), w.cfg.Key.Namespace, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			w.t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	return func() {
		for _, dir := range dirs {
			if err := os.Remove(dir); err != nil && !os.IsNotExist(err) {
				w.t.Error(err)
			}
		}
	}
}

// The kubelet's driver cgroupfs makes a pod's cgroup in every hierarchy of version 1 but that of the devices.
func TestThePodsCgroupMayHaveNoDirectoryOfTheDevices(t *testing.T) {
	w := newWorld(t)
	devices := "/sys/fs/cgroup/devices"
	if _, err := os.Stat(devices); err != nil {
		t.Skip("needs cgroup version 1: ", err)
	}
	defer w.makeParent("pod8")()
	if err := os.Remove(filepath.Join(devices, w.cfg.Key.Namespace, "pod8")); err != nil {
		t.Fatal(err)
	}
	var r abi.Request
	group, err := origin{cgroup: "/" + w.cfg.Key.Namespace + "/pod8"}.describe(&r, w.Pod)
	if err != nil || group == nil || r.PodCgroup == nil || len(r.PodCgroup.Dirs) == 0 {
		t.Fatalf("%+v, %+v, %v", group, r.PodCgroup, err)
	}
	for _, dir := range r.PodCgroup.Dirs {
		if strings.HasPrefix(dir, devices+"/") {
			t.Errorf("the pod's cgroup has %s", dir)
		}
	}
}

func TestAPodsCgroupThatCannotBeOpenedFailsRun(t *testing.T) {
	w := newWorld(t)
	var r abi.Request
	if _, err := (origin{cgroup: "/none-" + w.cfg.Key.Namespace}).describe(&r, w.Pod); err != nil || r.PodCgroup != nil {
		t.Errorf("of a pod without a cgroup: %+v, %v", r.PodCgroup, err)
	}
	if _, err := (origin{cgroup: "a--b.slice"}).describe(&r, w.Pod); err == nil || !strings.Contains(err.Error(), "a--b.slice") {
		t.Errorf("of a cgroup that is none: %v", err)
	}
}

// The processes of a VM are those below the supervisor.
func TestAVMOutsideOfThePodsCgroupIsAnError(t *testing.T) {
	w := newWorld(t)
	w.stage1.own = []abi.Own{abi.OwnResources, abi.OwnProcesses}
	defer w.makeParent("pod9")()
	var r abi.Request
	group, err := origin{cgroup: "/" + w.cfg.Key.Namespace + "/pod9"}.describe(&r, w.Pod)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{stage1: w.stage1, sup: Supervisor{PID: os.Getpid()}}
	if err := s.checkMachine(group); err != nil {
		t.Errorf("without a process: %v", err)
	}
	vm := exec.Command("sleep", "60")
	if err := vm.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = vm.Process.Kill(); _ = vm.Wait() }()
	if err := s.checkMachine(group); err == nil || !strings.Contains(err.Error(), "process "+strconv.Itoa(vm.Process.Pid)+" is outside") {
		t.Errorf("of a VM in the shim's cgroup: %v", err)
	}
	if err := s.checkMachine(nil); err != nil {
		t.Errorf("of a pod without a cgroup: %v", err)
	}
	w.stage1.own = nil
	if err := s.checkMachine(group); err != nil {
		t.Errorf("of a stage1 without VMs: %v", err)
	}
}

// The annotation is a client's: it may be in a spec that is no pause container's.
func TestAPauseContainerWithoutLinuxIsNoFault(t *testing.T) {
	a := &app{pod: &Pod{}, config: AppConfig{ID: "a", Spec: readSpec(t, `{"ociVersion":"1.1.0","process":{"args":["sh"],"cwd":"/"},
		"root":{"path":"rootfs"},"annotations":{"io.kubernetes.cri.container-type":"sandbox","io.kubernetes.cri.sandbox-memory":"7"}}`)}}
	if o := a.origin(); string(o.resources) != `{"memory":{"limit":7}}` || o.cgroup != "" {
		t.Errorf("resources %s, cgroup %q", o.resources, o.cgroup)
	}
}
