package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// The tests of this file are about the class of CVE-2016-9962: a container attacks the
// processes that its runtime starts in it, before they have executed the program of the
// container or exec.

// hunter is a container that attacks processes that appear in its PID namespace.
type hunter struct {
	task   containerd.Task
	exited <-chan containerd.ExitStatus
	mu     sync.Mutex
	said   strings.Builder
	ready  chan struct{}
}

// Write collects the hunter's output.
func (h *hunter) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.said.Len() == 0 {
		close(h.ready)
	}
	return h.said.Write(p)
}

// hunt starts a hunter, which looks for a file and a directory of the host.
func (c *column) hunt(t *testing.T, opts ...oci.SpecOpts) *hunter {
	t.Helper()
	host, err := os.MkdirTemp(suite.dir, "hunted-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(host) })
	file, dir := filepath.Join(host, "file"), filepath.Join(host, "dir")
	must(t, os.Chmod(host, 0o755))
	must(t, os.WriteFile(file, []byte("of the host"), 0o644))
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.Chmod(dir, 0o777|os.ModeSticky))
	h := &hunter{ready: make(chan struct{})}
	h.task = c.newTask(t, c.container(t, []string{"testprog", "hunt", file, dir}, opts...),
		cio.NewCreator(cio.WithStreams(nil, h, h), cio.WithFIFODir(fifoDir(c.daemon.Dir()))))
	h.exited = c.wait(t, h.task)
	if err := h.task.Start(c.context(t)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-h.ready:
	case s := <-h.exited:
		t.Fatalf("the hunter has ended with %d: %s", s.ExitCode(), h.words())
	}
	return h
}

func (h *hunter) words() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.said.String()
}

// end ends the hunter, which must have met processes to attack. It must have failed, except
// where the kernel lets it trace everything that it sees: there it must have succeeded.
func (h *hunter) end(t *testing.T, c *column, wins bool) {
	t.Helper()
	kill(t, c.context(t), h.task, syscall.SIGTERM)
	expectExit(t, h.exited, 0)
	awaitOutput(t, h.task)
	deleteTask(t, c.context(t), h.task)
	words := h.words()
	var met int
	if _, last, _ := strings.Cut(words, "met "); last != "" {
		fmt.Sscan(last, &met)
	}
	if met == 0 {
		t.Errorf("the hunter has met nothing, so this is no proof: it said %q", words)
	}
	t.Logf("the hunter has met %d processes before their programs", met)
	if wins {
		if !strings.Contains(words, "won seize") {
			t.Errorf("the hunter was let win and has lost, so the other cases prove nothing: it said %q", words)
		}
		return
	}
	for line := range strings.Lines(words) {
		if won, ok := strings.CutPrefix(line, "won "); ok {
			t.Errorf("the hunter has won: %s", won)
		}
	}
}

// prey is a way to isolate a hunter and the processes that it meets.
type prey struct {
	name   string
	hunter []oci.SpecOpts
	joins  []oci.SpecOpts // for a container that joins the namespaces of the hunter
	wins   bool
}

// tries returns how often a hunter is given a process to attack.
func (p prey) tries() int {
	if *longFlag || p.name == "mapped" {
		return 25
	}
	return 8
}

// goesOn reports whether a hunter is given another process after n of them. One that has met none
// before its program, or is let win and has not won yet, gets more of them: the time is short.
func (p prey) goesOn(n int, h *hunter) bool {
	words := h.words()
	return n < p.tries() || n < 500 && (!strings.Contains(words, "meets") || p.wins && !strings.Contains(words, "won seize"))
}

// preys returns all ways that the column supports: an ordinary container, and one that may
// trace the processes in its user namespace, whether this maps the host's root or not. A
// container that may trace and has no user namespace succeeds under every runtime.
func (c *column) preys() []prey {
	traces := oci.WithAddedCapabilities([]string{"CAP_SYS_PTRACE"})
	all := []prey{{name: "no user namespace"}, {name: "CAP_SYS_PTRACE of the host", hunter: []oci.SpecOpts{traces}, wins: true}}
	if c.name == "nspawn" { // nspawn refuses user namespaces
		return all
	}
	for _, in := range []struct {
		name string
		ids  []specs.LinuxIDMapping
	}{
		{"mapped", []specs.LinuxIDMapping{{HostID: 100000, Size: 65536}}},
		{"the host's root", []specs.LinuxIDMapping{{HostID: 0, Size: 10}, {ContainerID: 10, HostID: 1000, Size: 65526}}},
		{"the host's root as another", []specs.LinuxIDMapping{{HostID: 100000, Size: 10}, {ContainerID: 10, HostID: 0, Size: 1}}},
		{"all of the host's users", []specs.LinuxIDMapping{{HostID: 0, Size: 1<<32 - 1}}},
	} {
		user := oci.WithUserNamespace(in.ids, in.ids)
		all = append(all, prey{in.name, []oci.SpecOpts{user, traces}, []oci.SpecOpts{user}, false})
	}
	return all
}

func TestAContainerTakesOverNoExecOfIts(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		for _, prey := range c.preys() {
			t.Run(prey.name, func(t *testing.T) { c.huntExecs(t, prey, func(*specs.Process) {}) })
			if c.name == "native" || c.name == "nspawn" {
				t.Run(prey.name+", by init", func(t *testing.T) { c.huntExecs(t, prey, byInit) })
			}
		}
	})
}

// huntExecs lets a hunter attack execs in its container.
func (c *column) huntExecs(t *testing.T, prey prey, change func(*specs.Process)) {
	h := c.hunt(t, prey.hunter...)
	for i := 0; prey.goesOn(i, h); i++ {
		ctx := c.context(t)
		program := process(t, ctx, h.task, "testprog", "exit", "7")
		change(program)
		p, err := h.task.Exec(ctx, fmt.Sprint("e", i), program, cio.NullIO)
		must(t, err)
		exited := c.wait(t, p)
		must(t, p.Start(ctx))
		expectExit(t, exited, 7)
		deleteTask(t, ctx, p)
	}
	h.end(t, c, prey.wins)
}

func TestAContainerTakesOverNoContainerThatJoinsItsNamespaces(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		for _, prey := range c.preys() {
			t.Run(prey.name, func(t *testing.T) { c.huntApps(t, prey) })
			if c.name == "native" {
				t.Run(prey.name+", by init", func(t *testing.T) { c.huntApps(t, prey, withInit) })
			}
		}
	})
}

// byInit gives a process a field with which init makes it, and not a plan of system calls.
func byInit(p *specs.Process) {
	p.IOPriority = &specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_BE, Priority: 4}
}

// withInit is byInit for the first process of a container.
func withInit(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
	byInit(s.Process)
	return nil
}

// huntApps lets a hunter attack the first processes of containers that join its namespaces.
func (c *column) huntApps(t *testing.T, prey prey, opts ...oci.SpecOpts) {
	h := c.hunt(t, prey.hunter...)
	opts = append(opts, prey.joins...)
	for kind, file := range map[specs.LinuxNamespaceType]string{
		specs.UserNamespace: "user", specs.PIDNamespace: "pid", specs.NetworkNamespace: "net", specs.IPCNamespace: "ipc", specs.UTSNamespace: "uts",
	} {
		if kind != specs.UserNamespace || len(prey.joins) > 0 {
			opts = append(opts, oci.WithLinuxNamespace(specs.LinuxNamespace{Type: kind, Path: fmt.Sprintf("/proc/%d/ns/%s", h.task.Pid(), file)}))
		}
	}
	for i := 0; prey.goesOn(i, h); i++ {
		task := c.task(t, []string{"testprog", "exit", "7"}, opts...)
		exited := c.wait(t, task)
		must(t, task.Start(c.context(t)))
		expectExit(t, exited, 7)
		deleteTask(t, c.context(t), task)
	}
	h.end(t, c, prey.wins)
}
