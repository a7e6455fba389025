package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// handlers are the columns. Each is the default handler of a node.
var handlers = []node.Handler{
	{Name: "runc", Runtime: "io.containerd.runc.v2", Sandboxer: "podsandbox"},
	{Name: "rkt", Runtime: "io.containerd.rkt.v1", Sandboxer: "podsandbox"},
	{Name: "rkt-shim", Runtime: "io.containerd.rkt.v1", Sandboxer: "shim"},
}

// cases are the tests of a kubelet, which run all at once.
var cases = map[string]func(*testing.T, *kubelet){
	"a pod with an init container, a sidecar, probes and hooks": service,
	"a pod that succeeds":               succeeds,
	"a pod that fails":                  fails,
	"a container that is restarted":     restarts,
	"a container that is out of memory": outOfMemory,
	"a container that is not alive":     notAlive,
	"a pod with the node's namespaces":  nodeNamespaces,
	"a pod with one PID namespace":      shared,
	"a pod that cannot start":           cannotStart,
}

func TestStaticPods(t *testing.T) {
	if why := missing(); why != "" {
		t.Skip(why)
	}
	for _, h := range handlers {
		t.Run(h.Name, func(t *testing.T) {
			k := startKubelet(t, startNode(t, h))
			t.Run("with", func(t *testing.T) {
				for name, test := range cases {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						test(t, k)
					})
				}
			})
			t.Run("with a pod that outlives its containerd", func(t *testing.T) { restarted(t, k) })
			expectNothingLeft(t, k, h)
		})
	}
}

func startNode(t *testing.T, h node.Handler) *node.Node {
	t.Helper()
	o := nodeOptions(t)
	o.Dir, o.Shims = "/run/"+h.Name, []string{shimsDir}
	o.Handlers, o.Default = []node.Handler{h}, h.Name
	return start(t, o)
}

// nodeOptions returns the programs and images that all nodes have.
func nodeOptions(t *testing.T) node.Options {
	t.Helper()
	images, err := image.Test(filepath.Join(programsDir, "testprog"))
	must(t, err)
	pauseImage, err := node.Pause(filepath.Join(programsDir, "pause"))
	must(t, err)
	return node.Options{Programs: programsDir, Images: []image.Image{images[0], pauseImage}}
}

// start starts a node, which ends with the test.
func start(t *testing.T, o node.Options) *node.Node {
	t.Helper()
	n, err := node.Start(context.Background(), o)
	must(t, err)
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// service is a typical pod: an init container makes its page, one container serves it and a
// sidecar changes it.
func service(t *testing.T, k *kubelet) {
	const name = "service"
	always := corev1.ContainerRestartPolicyAlways
	prepare := shell("prepare", "echo prepared > /data/index.html")
	sidecar := shell("sidecar", "while :; do date >> /data/sidecar; sleep 1; done")
	sidecar.RestartPolicy = &always
	web := shell("web", "echo serving; exec httpd -f -p 8080 -h /data")
	web.StartupProbe = probe(byExec("test", "-e", "/data/index.html"))
	web.ReadinessProbe = probe(byHTTP(8080))
	web.LivenessProbe = probe(byExec("wget", "-q", "-O", "-", "http://127.0.0.1:8080/"))
	web.Lifecycle = &corev1.Lifecycle{
		PostStart: run("sh", "-c", "echo started > /data/hook"),
		PreStop:   run("sh", "-c", "echo stopping > /host/service"),
	}
	web.Resources = memory("64Mi")
	p := pod(name, web)
	p.Spec.InitContainers = []corev1.Container{prepare, sidecar}
	k.run(t, host(volume(p), k.file("host")))

	status := k.await(t, name, "it is ready", ready)
	if got := of(status, "prepare").State.Terminated; got == nil || got.ExitCode != 0 || got.Reason != "Completed" {
		t.Errorf("the init container: %+v", got)
	}
	if s := of(status, "web"); s.State.Running == nil || s.RestartCount != 0 {
		t.Errorf("the container: %+v", s)
	}
	if got := k.exec(t, name, "web", "cat /data/index.html /data/hook"); got != "prepared\nstarted" {
		t.Errorf("the volume has %q", got)
	}
	if got := k.logs(name, "web"); got != "serving\n" {
		t.Errorf("the log is %q", got)
	}
	wait.ObserveWithin(t, patience, "the pod's memory is known", func() (bool, string) { return k.hasStats(name, "web") })
	k.take(t, name)
	k.awaitGone(t, name)
	if b, err := os.ReadFile(k.file("host/service")); err != nil || string(b) != "stopping\n" {
		t.Errorf("the hook before the stop wrote %q, %v", b, err)
	}
}

// hasStats reports whether the kubelet has the samples that a metrics server reads.
func (k *kubelet) hasStats(name, container string) (bool, string) {
	b, err := k.get("/metrics/resource")
	if err != nil {
		return false, err.Error()
	}
	of := fmt.Sprintf("namespace=%q,pod=%q", "default", name+"-node")
	for _, sample := range []string{
		fmt.Sprintf("container_memory_working_set_bytes{container=%q,%s} ", container, of),
		fmt.Sprintf("container_cpu_usage_seconds_total{container=%q,%s} ", container, of),
		fmt.Sprintf("pod_memory_working_set_bytes{%s} ", of),
	} {
		_, value, found := strings.Cut(string(b), "\n"+sample)
		if !found || strings.HasPrefix(value, "0 ") {
			return false, fmt.Sprintf("no %s in\n%s", sample, b)
		}
	}
	return true, ""
}

func succeeds(t *testing.T, k *kubelet) {
	c := shell("one", "echo done > /dev/termination-log")
	p := pod("succeeds", c, shell("two", "sleep 1"))
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	k.run(t, p)
	status := k.await(t, "succeeds", "it has succeeded", func(s corev1.PodStatus) bool { return s.Phase == corev1.PodSucceeded })
	if got := of(status, "one").State.Terminated; got == nil || got.Message != "done\n" {
		t.Errorf("its end: %+v", got)
	}
	k.take(t, "succeeds")
	k.awaitGone(t, "succeeds")
}

func fails(t *testing.T, k *kubelet) {
	p := pod("fails", shell("c", "exit 42"))
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	k.run(t, p)
	status := k.await(t, "fails", "it has failed", func(s corev1.PodStatus) bool { return s.Phase == corev1.PodFailed })
	if got := of(status, "c").State.Terminated; got == nil || got.ExitCode != 42 || got.Reason != "Error" {
		t.Errorf("its end: %+v", got)
	}
	k.take(t, "fails")
	k.awaitGone(t, "fails")
}

func restarts(t *testing.T, k *kubelet) {
	p := volume(pod("restarts", shell("c", "test -e /data/twice && exec sleep 1000; test -e /data/once && touch /data/twice; touch /data/once; exit 3"), shell("other", "sleep 1000")))
	k.run(t, p)
	status := k.await(t, "restarts", "it runs the third time", func(s corev1.PodStatus) bool {
		c := of(s, "c")
		return c.RestartCount == 2 && c.State.Running != nil
	})
	if got := of(status, "c").LastTerminationState.Terminated; got == nil || got.ExitCode != 3 {
		t.Errorf("its last end: %+v", got)
	}
	if other := of(status, "other"); other.RestartCount != 0 || other.State.Running == nil {
		t.Errorf("the other container: %+v", other)
	}
	k.take(t, "restarts")
	k.awaitGone(t, "restarts")
}

func outOfMemory(t *testing.T, k *kubelet) {
	c := shell("c", "exec testprog allocate 128")
	c.Resources = memory("32Mi")
	p := pod("oom", c, shell("other", "sleep 1000"))
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	k.run(t, p)
	status := k.await(t, "oom", "it has ended", func(s corev1.PodStatus) bool { return of(s, "c").State.Terminated != nil })
	if got := of(status, "c").State.Terminated; got.Reason != "OOMKilled" || got.ExitCode != 137 {
		t.Errorf("its end: %+v", got)
	}
	if other := of(status, "other"); other.State.Running == nil {
		t.Errorf("the other container: %+v", other)
	}
	k.take(t, "oom")
	k.awaitGone(t, "oom")
}

func notAlive(t *testing.T, k *kubelet) {
	c := shell("c", "touch /tmp/alive; sleep 2; rm /tmp/alive; sleep 1000")
	c.LivenessProbe = probe(byExec("cat", "/tmp/alive"))
	k.run(t, pod("not-alive", c))
	status := k.await(t, "not-alive", "it is restarted", func(s corev1.PodStatus) bool { return of(s, "c").RestartCount > 0 })
	if got := of(status, "c").LastTerminationState.Terminated; got == nil || got.ExitCode != 137 {
		t.Errorf("its last end: %+v", got)
	}
	k.take(t, "not-alive")
	k.awaitGone(t, "not-alive")
}

func nodeNamespaces(t *testing.T, k *kubelet) {
	p := pod("node", shell("c", "for n in net pid ipc; do readlink /proc/self/ns/$n; done; sleep 1000"))
	p.Spec.HostNetwork, p.Spec.HostPID, p.Spec.HostIPC = true, true, true
	k.run(t, p)
	k.await(t, "node", "it is ready", ready)
	var want string
	for _, n := range []string{"net", "pid", "ipc"} {
		link, err := os.Readlink("/proc/self/ns/" + n)
		must(t, err)
		want += link + "\n"
	}
	wait.ObserveWithin(t, patience, "it says in which namespaces it is", func() (bool, string) {
		got := k.logs("node", "c")
		return got == want, got + "; the node: " + want
	})
	k.take(t, "node")
	k.awaitGone(t, "node")
}

func shared(t *testing.T, k *kubelet) {
	p := pod("shared", shell("c", "sleep 1111"), shell("d", "sleep 2222"))
	p.Spec.ShareProcessNamespace = new(true)
	k.run(t, p)
	k.await(t, "shared", "it is ready", ready)
	got := k.exec(t, "shared", "c", "ps")
	if !strings.Contains(got, "sleep 1111") || !strings.Contains(got, "sleep 2222") {
		t.Errorf("one container sees:\n%s", got)
	}
	k.take(t, "shared")
	k.awaitGone(t, "shared")
}

func cannotStart(t *testing.T, k *kubelet) {
	c := shell("c", "")
	c.Command = []string{"/no/such/program"}
	p := pod("broken", c)
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	k.run(t, p)
	status := k.await(t, "broken", "it has failed", func(s corev1.PodStatus) bool { return s.Phase == corev1.PodFailed })
	if got := of(status, "c").State.Terminated; got == nil || got.ExitCode != 128 || got.Reason != "StartError" || !strings.Contains(got.Message, "no such file or directory") {
		t.Errorf("its end: %+v", got)
	}
	k.take(t, "broken")
	k.awaitGone(t, "broken")
}

// restarted is a pod that outlives its kubelet and its containerd.
func restarted(t *testing.T, k *kubelet) {
	const name = "survivor"
	k.run(t, pod(name, shell("c", "sleep 1000")))
	before := of(k.await(t, name, "it is ready", ready), "c")
	must(t, k.node.Stop())
	must(t, k.node.Resume(context.Background()))
	wait.ObserveWithin(t, patience, "the kubelet reaches it again", func() (bool, string) {
		out, err := k.tryExec(name, "c", "echo again")
		return err == nil && out == "again", fmt.Sprint(out, err)
	})
	after := of(k.await(t, name, "it is ready after containerd's restart", ready), "c")
	if after.ContainerID != before.ContainerID || after.RestartCount != 0 {
		t.Errorf("it was %+v and is %+v", before, after)
	}
	k.take(t, name)
	k.awaitGone(t, name)
}

// expectNothingLeft looks for remains of the pods on the node, after the kubelet has cleaned
// up.
func expectNothingLeft(t *testing.T, k *kubelet, h node.Handler) {
	t.Helper()
	n := k.node
	s := leaks.Scope{Dir: n.Dir(), Namespace: "kubepods", Except: []int{n.PID(), k.cmd.Process.Pid, os.Getpid(), 1}, Empty: []string{
		n.Bundle(""), "/run/netns",
		filepath.Join(n.Dir(), "state/io.containerd.sandbox.controller.v1.shim", node.Namespace),
	}}
	for _, state := range []string{"embryo", "prepare", "prepared", "run", "exited-garbage", "garbage"} {
		s.Empty = append(s.Empty, filepath.Join(n.Pods(), state))
	}
	if h.Name != "runc" { // runc's shim leaves sockets of groups behind
		s.Empty = append(s.Empty, n.Shims())
	}
	wait.ObserveWithin(t, patience, "nothing of the pods is left", func() (bool, string) {
		left, err := s.Remains()
		left = slices.DeleteFunc(left, func(l string) bool {
			kubelets := strings.HasPrefix(l, "cgroup ") && !strings.Contains(l, "/pod") || l == "mount "+filepath.Join(n.Dir(), "kubelet/root")
			return kubelets
		})
		return err == nil && len(left) == 0, fmt.Sprint(err, "\n\t", strings.Join(left, "\n\t"))
	})
}
