package cri

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// pods is the section about the containers of a pod.
func pods() section {
	return section{"Pods and containers", []feature{
		{"init containers, one after another", initContainers},
		{"a pod lives on when its first init container is removed", firstContainerRemoved},
		{"a sidecar outlives the others", sidecar},
		{"a container is restarted in a living pod", containerRestarted},
		{"a debug container joins a running pod", debugContainer},
		{"a debug container sees the processes of its target", debugTarget},
		{"ten containers at once", tenContainers},
		{"exit codes, times and reasons", exitStatus},
		{"a program that is not there: error and status", programMissing},
		{"what cannot be started leaves nothing in the shim", failedStartLeavesNothing},
		{"a container is created and never started", neverStarted},
		{"two pods of one name, one after the other", podAgain},
	}}
}

func initContainers(t *testing.T, c *column) {
	p := c.pod(t)
	volume := volume(t, p)
	for i := range 3 {
		p.output(fmt.Sprintf("init-%d", i), sh(fmt.Sprintf("echo %d >>/volume/order", i)), mounted(volume))
	}
	main := p.run("main", sh("cat /volume/order; exec sleep 1000"), mounted(volume))
	main.awaitLog("0\n1\n2\n")
	main.expectRunning()
}

func firstContainerRemoved(t *testing.T, c *column) {
	p := c.pod(t)
	first := p.run("init-0", sh("true"))
	first.expectExit(0)
	second := p.run("main", forever())
	before := second.exec("readlink", "/proc/self/ns/net")
	first.remove()
	p.expectState(runtimeapi.PodSandboxState_SANDBOX_READY)
	second.expectRunning()
	third := p.run("late", forever())
	if after := third.exec("readlink", "/proc/self/ns/net"); after != before {
		t.Errorf("another network namespace: %s, was %s", after, before)
	}
}

func sidecar(t *testing.T, c *column) {
	p := c.pod(t)
	side := p.run("sidecar", sh("trap 'echo bye; exit 0' TERM; while :; do sleep 1000 & wait $!; done"))
	p.output("init", sh("true"))
	p.output("main", sh("true"))
	side.expectRunning()
	side.stop(20)
	side.expectExit(0)
	if l := side.log(); l != "bye\n" {
		t.Errorf("it wrote %q", l)
	}
}

func containerRestarted(t *testing.T, c *column) {
	p := c.pod(t)
	witness := p.run("witness", forever())
	var last *container
	for attempt := range uint32(3) {
		if last != nil {
			last.expectExit(7)
		}
		last = p.run("main", sh("readlink /proc/self/ns/net; exit 7"), func(c *runtimeapi.ContainerConfig) {
			c.Metadata.Attempt = attempt
			c.LogPath = fmt.Sprintf("main_%d.log", attempt)
		})
	}
	last.expectExit(7)
	if got, want := last.log(), witness.exec("readlink", "/proc/self/ns/net"); got != want {
		t.Errorf("another network namespace: %s, was %s", got, want)
	}
	witness.expectRunning()
	p.expectState(runtimeapi.PodSandboxState_SANDBOX_READY)
}

func debugContainer(t *testing.T, c *column) {
	p := c.pod(t)
	main := p.run("main", serve(8080))
	main.expectRunning()
	debug := p.run("debugger", forever())
	wait.Observe(t, "the debug container reaches the other by localhost", func() (bool, string) {
		_, out, errout := debug.execCode("wget", "-qO-", "http://127.0.0.1:8080/")
		return out == "hello\n", out + errout
	})
	debug.stop(0)
	debug.remove()
	main.expectRunning()
}

// serve is the command of a web server whose only page says hello.
func serve(port int) []string {
	return sh(fmt.Sprintf("mkdir -p /www && echo hello >/www/index.html && exec httpd -f -p %d -h /www", port))
}

func debugTarget(t *testing.T, c *column) {
	p := c.pod(t)
	main := p.run("main", sh("exec sleep 4242"))
	debug := p.run("debugger", forever(), secured(func(s *runtimeapi.LinuxContainerSecurityContext) {
		s.NamespaceOptions = &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: main.id}
	}))
	if out := debug.exec("cat", "/proc/1/cmdline"); !strings.Contains(out, "4242") {
		t.Errorf("process 1 is %q", out)
	}
	if a, b := debug.exec("readlink", "/proc/self/ns/pid"), main.exec("readlink", "/proc/self/ns/pid"); a != b {
		t.Errorf("PID namespaces %s and %s", a, b)
	}
	main.stop(0)
	main.expectExit(137)
	// The namespace ends with its first process, and so do the processes that have joined it.
	debug.expectExit(137)
}

func tenContainers(t *testing.T, c *column) {
	p := c.pod(t)
	var all []*container
	for i := range 10 {
		all = append(all, p.run(fmt.Sprintf("c%d", i), sh(fmt.Sprintf("echo %d; exec sleep 1000", i))))
	}
	for i, one := range all {
		one.awaitLog(fmt.Sprintln(i))
	}
	list, err := c.runtime.ListContainers(testContext(t), &runtimeapi.ContainerFilter{
		PodSandboxId: p.id,
		State:        &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	if err != nil || len(list) != 10 {
		t.Errorf("%d containers run, want 10 (%v)", len(list), err)
	}
}

func exitStatus(t *testing.T, c *column) {
	p := c.pod(t)
	one := p.create("main", sh("exit 3"))
	created := one.status()
	if created.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED {
		t.Errorf("created, it is %s", created.GetState())
	}
	one.start()
	s := one.expectExit(3)
	if s.GetReason() != "Error" || s.GetStartedAt() < s.GetCreatedAt() || s.GetFinishedAt() < s.GetCreatedAt() {
		t.Errorf("status: %v", s)
	}
	good := p.run("good", sh("true"))
	if s := good.expectExit(0); s.GetReason() != "Completed" {
		t.Errorf("status: %v", s)
	}
	killed := p.run("killed", sh("kill -SEGV $$; sleep 1000"), withSharedPID)
	killed.expectExit(139)
}

// withSharedPID is for programs that cannot be the first process of a PID namespace.
func withSharedPID(c *runtimeapi.ContainerConfig) {
	c.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_NODE}
}

func programMissing(t *testing.T, c *column) {
	p := c.pod(t)
	one, err := p.tryRun("main", []string{"/no/such/program"})
	if err == nil || !strings.Contains(err.Error(), "no such file or directory") {
		t.Errorf("start: %v", err)
	}
	s := one.status()
	if s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s.GetReason() != "StartError" || s.GetExitCode() != 128 {
		t.Errorf("status: %v", s)
	}
	one.remove()
	two, err := p.tryRun("other", []string{"no-such-program"})
	if err == nil || !strings.Contains(err.Error(), "executable file not found in $PATH") {
		t.Errorf("start: %v", err)
	}
	two.remove()
	p.output("good", sh("true"))
}

func failedStartLeavesNothing(t *testing.T, c *column) {
	p := c.pod(t)
	shim := p.shim()
	fail := func(name string) {
		if one, err := p.tryRun(name, []string{"no-such-program"}); err == nil {
			t.Error("it was started")
		} else {
			one.remove()
		}
	}
	fail("first") // from here on the shim has the stage1's socket open
	before, err := leaks.Descriptors(shim)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		fail(fmt.Sprint("main-", i))
	}
	wait.Observe(t, "no stream is left", func() (bool, string) {
		after, err := leaks.Descriptors(shim)
		if err != nil {
			return false, err.Error()
		}
		pipes := slices.DeleteFunc(slices.Clone(after), func(s string) bool { return !strings.HasPrefix(s, "pipe:") })
		return len(pipes) == 0 && len(after) <= len(before), fmt.Sprintf("before: %q, after: %q", before, after)
	})
}

func neverStarted(t *testing.T, c *column) {
	p := c.pod(t)
	one := p.create("main", forever())
	one.remove()
	p.create("again", forever())
	p.stop()
}

func podAgain(t *testing.T, c *column) {
	first := c.pod(t)
	first.output("main", sh("true"))
	first.stop()
	first.remove()
	second := c.pod(t, func(config *runtimeapi.PodSandboxConfig) {
		config.Metadata.Name = first.config.GetMetadata().GetName()
		config.Metadata.Uid = first.config.GetMetadata().GetUid()
	})
	second.output("main", sh("true"))
}
