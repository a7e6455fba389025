package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// holds returns a request of run for a sandbox, with the bundle of the process that
// holds the sandbox's namespaces.
func (p *pod) holds(change func(*specs.Spec)) abi.Request {
	r := p.request("holder", "sleep", "1000")
	respec(p.t, &r, func(s *specs.Spec) {
		s.Hostname = "blue"
		s.Linux.Namespaces = nil
		for _, ns := range []specs.LinuxNamespaceType{"mount", "ipc", "uts", "pid", "network"} {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: ns})
		}
		if change != nil {
			change(s)
		}
	})
	return abi.Request{
		Container: "box", Bundle: r.Bundle, Rootfs: r.Rootfs, Spec: r.Spec, Cgroup: r.Cgroup,
		Sandbox: &abi.Sandbox{Hostname: "blue"},
	}
}

func TestTheLeaderOfASandboxHoldsItsNamespaces(t *testing.T) {
	p := newPod(t)
	if a := p.start(p.holds(func(s *specs.Spec) { s.Linux.Sysctl = map[string]string{"kernel.msgmax": "4711"} })); a.code != 0 {
		t.Fatalf("run: exit code %d: %s", a.code, a.text)
	}
	holder := p.ready.PID
	if holder == p.run.Process.Pid {
		t.Fatal("the supervisor itself is the leader")
	}
	r := p.request("web", "sh", "-c", "cat /proc/sys/kernel/hostname /proc/sys/kernel/msgmax; sleep 1000")
	respec(t, &r, func(s *specs.Spec) { s.Linux.Namespaces = joined(holder, "network", "ipc", "uts", "pid") })
	out, stdout := pipe(t)
	pid := p.add(r, nil, stdout)
	p.expect(0, abi.AppStart, "web")
	stdout.Close()
	buf := make([]byte, 64)
	var said string
	for strings.Count(said, "\n") < 2 {
		n, err := out.Read(buf)
		must(t, err)
		said += string(buf[:n])
	}
	if said != "blue\n4711\n" {
		t.Errorf("an app in the sandbox says %q", said)
	}
	for _, ns := range []string{"net", "ipc", "uts", "pid"} {
		if namespace(t, holder, ns) != namespace(t, pid, ns) || namespace(t, holder, ns) == namespace(t, os.Getpid(), ns) {
			t.Errorf("%s: the holder's, the app's and the host's are %s, %s and %s", ns, namespace(t, holder, ns), namespace(t, pid, ns), namespace(t, os.Getpid(), ns))
		}
	}
	if a := p.call(abi.Stop, entrypoint{args: []string{podID}}); a.code != 0 {
		t.Errorf("stop: %d %s", a.code, a.text)
	}
	p.over()
	if alive(holder) || alive(pid) {
		t.Error("a process of the pod outlives it")
	}
}

func TestAHolderThatEndsIsReapedAndNobodyIsTold(t *testing.T) {
	p := newPod(t)
	if a := p.start(p.holds(nil)); a.code != 0 {
		t.Fatalf("run: exit code %d: %s", a.code, a.text)
	}
	must(t, syscall.Kill(p.ready.PID, syscall.SIGKILL))
	wait.Until(t, "the holder is reaped", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", p.ready.PID))
		return err != nil
	})
	// The supervisor goes on after the holder's end, and reports the exits of apps.
	r := p.request("web", "true")
	p.add(r)
	p.expect(0, abi.AppStart, "web")
	p.exited("web", "", 0, 0)
	p.empty()
}

func TestASandboxThatCannotBeHeldDoesNotStart(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*specs.Spec)
		text   string
		code   int
	}{
		"a program that is not there": {func(s *specs.Spec) { s.Process.Args = []string{"/nowhere"} }, "no such file or directory", 1},
		"a foreign sysctl":            {func(s *specs.Spec) { s.Linux.Sysctl = map[string]string{"vm.swappiness": "1"} }, "vm.swappiness", 1},
		"a network that is not there": {func(s *specs.Spec) { s.Linux.Namespaces[4].Path = "/run/netns/nowhere" }, "/run/netns/nowhere", 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			a := p.start(p.holds(c.change))
			if a.code != c.code || !strings.Contains(a.text, c.text) || !strings.Contains(a.text, "holder of the pod") {
				t.Errorf("exit code %d, text %q", a.code, a.text)
			}
			p.over()
		})
	}
}
