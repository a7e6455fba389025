package cri

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/exec"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// pod is a pod sandbox of a test.
type pod struct {
	*column
	t      *testing.T
	id     string
	config *runtimeapi.PodSandboxConfig
	logs   string
}

// container is a container of a pod.
type container struct {
	*pod
	id     string
	config *runtimeapi.ContainerConfig
	path   string // of its cgroup, if that is not below the pod's by the container's id
}

// podConfig returns the configuration of a pod as the kubelet would send it, changed by edits.
func (c *column) podConfig(t *testing.T, edits ...func(*runtimeapi.PodSandboxConfig)) *runtimeapi.PodSandboxConfig {
	t.Helper()
	c.serial++
	name := fmt.Sprintf("%s-%d", c.name, c.serial)
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Uid: "uid-" + name, Namespace: "default"},
		Hostname:     name,
		LogDirectory: t.TempDir(),
		DnsConfig:    &runtimeapi.DNSConfig{Servers: []string{"10.96.0.10"}, Searches: []string{"default.svc.cluster.local"}, Options: []string{"ndots:5"}},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: c.podCgroup(c.serial),
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
		},
	}
	for _, edit := range edits {
		edit(config)
	}
	return config
}

// pod makes a pod and starts it.
func (c *column) pod(t *testing.T, edits ...func(*runtimeapi.PodSandboxConfig)) *pod {
	t.Helper()
	p, err := c.tryPod(t, edits...)
	if err != nil {
		t.Fatalf("run a pod: %v", err)
	}
	return p
}

func (c *column) tryPod(t *testing.T, edits ...func(*runtimeapi.PodSandboxConfig)) (*pod, error) {
	t.Helper()
	config := c.podConfig(t, edits...)
	c.makePodCgroup(t, config.GetLinux().GetCgroupParent())
	id, err := c.runtime.RunPodSandbox(testContext(t), config, c.handler.Name)
	if err != nil {
		return nil, err
	}
	p := &pod{column: c, t: t, id: id, config: config, logs: config.GetLogDirectory()}
	t.Cleanup(func() { // before the pod's cgroup is removed
		p.stop()
		p.remove()
	})
	return p, nil
}

// linux edits the part of a pod's configuration that most tests edit.
func linux(edit func(*runtimeapi.LinuxPodSandboxConfig)) func(*runtimeapi.PodSandboxConfig) {
	return func(c *runtimeapi.PodSandboxConfig) { edit(c.GetLinux()) }
}

// withNamespaces sets how a pod's namespaces are shared.
func withNamespaces(o *runtimeapi.NamespaceOption) func(*runtimeapi.PodSandboxConfig) {
	return linux(func(l *runtimeapi.LinuxPodSandboxConfig) { l.SecurityContext.NamespaceOptions = o })
}

// sh is the command of a container that runs a script.
func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

// forever is the command of a container that runs until it is stopped.
func forever() []string {
	return sh("trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done")
}

// containerConfig returns the configuration of a container of the pod.
func (p *pod) containerConfig(name string, args []string, edits ...func(*runtimeapi.ContainerConfig)) *runtimeapi.ContainerConfig {
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: busyboxImage},
		Command:  args,
		LogPath:  name + ".log",
		Linux: &runtimeapi.LinuxContainerConfig{
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: p.config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
				MaskedPaths:      defaultMaskedPaths,
				ReadonlyPaths:    defaultReadonlyPaths,
			},
			Resources: &runtimeapi.LinuxContainerResources{},
		},
	}
	for _, edit := range edits {
		edit(config)
	}
	return config
}

// The kubelet asks for this unless procMount is Unmasked.
var (
	defaultMaskedPaths = []string{"/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"}
	defaultReadonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// secured edits a container's security context.
func secured(edit func(*runtimeapi.LinuxContainerSecurityContext)) func(*runtimeapi.ContainerConfig) {
	return func(c *runtimeapi.ContainerConfig) { edit(c.GetLinux().GetSecurityContext()) }
}

// limited edits a container's resources.
func limited(edit func(*runtimeapi.LinuxContainerResources)) func(*runtimeapi.ContainerConfig) {
	return func(c *runtimeapi.ContainerConfig) { edit(c.GetLinux().GetResources()) }
}

// mounted adds volumes to a container.
func mounted(mounts ...*runtimeapi.Mount) func(*runtimeapi.ContainerConfig) {
	return func(c *runtimeapi.ContainerConfig) { c.Mounts = append(c.Mounts, mounts...) }
}

// create creates a container.
func (p *pod) create(name string, args []string, edits ...func(*runtimeapi.ContainerConfig)) *container {
	p.t.Helper()
	c, err := p.tryCreate(name, args, edits...)
	if err != nil {
		p.t.Fatalf("create %s: %v", name, err)
	}
	return c
}

func (p *pod) tryCreate(name string, args []string, edits ...func(*runtimeapi.ContainerConfig)) (*container, error) {
	p.t.Helper()
	config := p.containerConfig(name, args, edits...)
	id, err := p.runtime.CreateContainer(testContext(p.t), p.id, config, p.config)
	return &container{pod: p, id: id, config: config}, err
}

// run creates and starts a container.
func (p *pod) run(name string, args []string, edits ...func(*runtimeapi.ContainerConfig)) *container {
	p.t.Helper()
	c := p.create(name, args, edits...)
	c.start()
	return c
}

// tryRun is run for a container that may be refused, when it is created or when it is started.
func (p *pod) tryRun(name string, args []string, edits ...func(*runtimeapi.ContainerConfig)) (*container, error) {
	p.t.Helper()
	c, err := p.tryCreate(name, args, edits...)
	if err != nil {
		return c, err
	}
	return c, p.runtime.StartContainer(testContext(p.t), c.id)
}

// output runs a container until it ends, expects exit code 0, and returns the container's
// output. If containerd has dropped that, it runs another one.
func (p *pod) output(name string, args []string, edits ...func(*runtimeapi.ContainerConfig)) string {
	p.t.Helper()
	c := p.run(name, args, edits...)
	c.expectExit(0)
	if c.wasNotHeard() {
		return p.output(name+"-again", args, edits...)
	}
	return c.log()
}

// wasNotHeard reports whether containerd has dropped the output of a container. containerd opens a
// fifo in the background, and gives up on one that is not open when the container has ended. On a
// busy machine that is so with short containers of any runtime (docker/for-linux#402).
func (c *container) wasNotHeard() bool {
	for line := range strings.Lines(c.node.LogTail(100)) {
		if strings.Contains(line, "Failed to pipe") && strings.Contains(line, c.id) && strings.Contains(line, "reading from a closed fifo") {
			return true
		}
	}
	return false
}

// expectRefused fails the test unless a container fails with an error that contains one of the
// words.
func (p *pod) expectRefused(words string, args []string, edits ...func(*runtimeapi.ContainerConfig)) {
	p.t.Helper()
	switch _, err := p.tryRun("refused", args, edits...); {
	case err == nil:
		p.t.Errorf("it was not refused; want %q", words)
	case !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(words)):
		p.t.Errorf("refused with %v; wanted %q", err, words)
	}
}

func (c *container) start() {
	c.t.Helper()
	if err := c.runtime.StartContainer(testContext(c.t), c.id); err != nil {
		c.t.Fatalf("start %s: %v", c.config.GetMetadata().GetName(), err)
	}
}

// stop stops a container as the kubelet does.
func (c *container) stop(grace int64) {
	c.t.Helper()
	if err := c.runtime.StopContainer(testContext(c.t), c.id, grace); err != nil {
		c.t.Errorf("stop %s: %v", c.config.GetMetadata().GetName(), err)
	}
}

func (c *container) remove() {
	c.t.Helper()
	if err := c.runtime.RemoveContainer(testContext(c.t), c.id); err != nil {
		c.t.Errorf("remove %s: %v", c.config.GetMetadata().GetName(), err)
	}
}

func (c *container) status() *runtimeapi.ContainerStatus {
	c.t.Helper()
	r, err := c.runtime.ContainerStatus(testContext(c.t), c.id, false)
	if err != nil {
		c.t.Fatalf("status of %s: %v", c.config.GetMetadata().GetName(), err)
	}
	return r.GetStatus()
}

// expectExit waits for a container's end and compares its code.
func (c *container) expectExit(code int32) *runtimeapi.ContainerStatus {
	c.t.Helper()
	var s *runtimeapi.ContainerStatus
	wait.Observe(c.t, c.config.GetMetadata().GetName()+" exits", func() (bool, string) {
		s = c.status()
		return s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED, s.String()
	})
	if s.GetExitCode() != code {
		c.t.Errorf("%s: exit code %d (%s: %s), want %d; it wrote:\n%s",
			c.config.GetMetadata().GetName(), s.GetExitCode(), s.GetReason(), s.GetMessage(), code, c.log())
	}
	return s
}

func (c *container) expectRunning() {
	c.t.Helper()
	if s := c.status(); s.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		c.t.Errorf("%s: %s, exit code %d; want it running", c.config.GetMetadata().GetName(), s.GetState(), s.GetExitCode())
	}
}

// log returns the output of a container, without the log's time stamps.
func (c *container) log() string {
	c.t.Helper()
	return c.stream("")
}

// stream returns the output of a container to stdout, stderr, or both.
func (c *container) stream(name string) string {
	c.t.Helper()
	return readLog(c.t, filepath.Join(c.logs, c.config.GetLogPath()), name)
}

// readLog reads a log in CRI's format: TIME STREAM P|F TEXT.
func readLog(t *testing.T, file, stream string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(raw)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(fields) != 4 {
			t.Fatalf("no line of a log: %q", line)
		}
		if stream != "" && fields[1] != stream {
			continue
		}
		b.WriteString(fields[3])
		if fields[2] == "F" {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// awaitLog waits until a container's output contains a text.
func (c *container) awaitLog(text string) {
	c.t.Helper()
	wait.Observe(c.t, fmt.Sprintf("%s writes %q", c.config.GetMetadata().GetName(), text), func() (bool, string) {
		l := c.log()
		return strings.Contains(l, text), l
	})
}

// exec runs a command in a container, expects exit code 0, and returns its output.
func (c *container) exec(args ...string) string {
	c.t.Helper()
	stdout, stderr, err := c.runtime.ExecSync(testContext(c.t), c.id, args, time.Minute)
	if err != nil {
		c.t.Fatalf("exec %q in %s: %v: %s%s", args, c.config.GetMetadata().GetName(), err, stdout, stderr)
	}
	return string(stdout)
}

// execCode runs a command in a container and returns its exit code and output.
func (c *container) execCode(args ...string) (code int, stdout, stderr string) {
	c.t.Helper()
	out, errout, err := c.runtime.ExecSync(testContext(c.t), c.id, args, time.Minute)
	if exit, ok := errors.AsType[exec.CodeExitError](err); ok {
		return exit.ExitStatus(), string(out), string(errout)
	}
	if err != nil {
		c.t.Fatalf("exec %q in %s: %v", args, c.config.GetMetadata().GetName(), err)
	}
	return 0, string(out), string(errout)
}

func (p *pod) stop() {
	p.t.Helper()
	if err := p.runtime.StopPodSandbox(testContext(p.t), p.id); err != nil {
		p.t.Errorf("stop the pod: %v", err)
	}
}

func (p *pod) remove() {
	p.t.Helper()
	if err := p.runtime.RemovePodSandbox(testContext(p.t), p.id); err != nil {
		p.t.Errorf("remove the pod: %v", err)
	}
}

func (p *pod) status() *runtimeapi.PodSandboxStatus {
	p.t.Helper()
	r, err := p.runtime.PodSandboxStatus(testContext(p.t), p.id, true)
	if err != nil {
		p.t.Fatalf("status of the pod: %v", err)
	}
	return r.GetStatus()
}

func (p *pod) expectState(want runtimeapi.PodSandboxState) {
	p.t.Helper()
	wait.Observe(p.t, "the pod is "+want.String(), func() (bool, string) {
		got := p.status().GetState()
		return got == want, got.String()
	})
}
