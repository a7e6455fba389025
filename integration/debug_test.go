package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// bareImage imports an image that has only one static program, and no shell.
func (c *column) bareImage(t *testing.T) containerd.Image {
	t.Helper()
	const ref = "integration.test/bare:latest"
	prog, err := os.ReadFile(suite.testprog)
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "bare.tar")
	if err := image.WriteFile(archive, image.Image{Name: ref, Layers: [][]image.File{{{Name: "service", Mode: 0o755, Content: prog}}}}); err != nil {
		t.Fatal(err)
	}
	c.ctr(t, "image", "import", archive).must(t)
	img, err := c.client.GetImage(c.context(t), ref)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// debugged is a container that rktctl debug looks at.
type debugged struct {
	*column
	id   string
	task containerd.Task // nil if CRI has made it
}

// service runs the container.
func (c *column) service(t *testing.T, opts ...oci.SpecOpts) *debugged {
	t.Helper()
	container := c.containerOf(t, c.client, c.bareImage(t), c.runtime, c.id(), []string{"/service", "serve", "7777", "it works"}, opts...)
	task := c.newTask(t, container, cio.NullIO)
	if err := task.Start(c.context(t)); err != nil {
		t.Fatal(err)
	}
	return &debugged{c, task.ID(), task}
}

// debug calls rktctl debug with a command.
func (d *debugged) debug(t *testing.T, command ...string) result {
	t.Helper()
	return d.rktctl(t, append([]string{"debug", d.id, "--image", image.BusyboxName, "--"}, command...)...)
}

// begin starts a debug app that writes its line "ready", and goes on.
func (d *debugged) begin(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(d.context(t), filepath.Join(suite.shims, "rktctl"), "debug", d.id, "--image", image.BusyboxName, "--", "sh", "-c", "echo ready; "+script)
	cmd.Env = append(os.Environ(), "RKT_DATA_DIR="+dataDir(d.daemon.Dir()))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	must(t, cmd.Start())
	if _, err := out.Read(make([]byte, len("ready\n"))); err != nil {
		_ = cmd.Wait()
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return cmd
}

// debugApp returns the first process of the pod's only debug app.
func (d *debugged) debugApp(t *testing.T) int {
	t.Helper()
	for _, a := range d.shown(t, d.id).Apps {
		if strings.HasPrefix(a.ID, "rktctl-") {
			return a.Process.PID
		}
	}
	t.Fatal("the pod has no debug app")
	return 0
}

// expectNoDebugApp waits until nothing of a debug app is left in a pod that goes on.
func (d *debugged) expectNoDebugApp(t *testing.T, pid int) {
	t.Helper()
	wait.Observe(t, "nothing is left of the debug app", func() (bool, string) {
		left, _ := filepath.Glob(dataDir(d.daemon.Dir()) + "/debug/*/*")
		apps, _ := filepath.Glob(dataDir(d.daemon.Dir()) + "/pods/*/*/appsinfo/rktctl-*")
		groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + d.daemon.Namespace() + "/rktctl-*")
		one, _ := filepath.Glob("/sys/fs/cgroup/" + d.daemon.Namespace() + "/rktctl-*")
		left = slices.Concat(left, apps, groups, one)
		return len(left) == 0 && !alive(pid), strings.Join(left, " ")
	})
}

// The third use case of rkt's proposal: a container has only the program of a service, and is
// looked at with the programs of another image.
func TestRktctlDebugsAContainerWithoutAShell(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		d := c.service(t)
		if c.wraps == "runsc" { // each container is a sandbox of its own
			if r := d.debug(t, "ps"); r.code != 1 || r.stdout != "" || !strings.Contains(r.stderr, "has made the debug app in another pid namespace") {
				t.Errorf("%+v", r)
			}
			d.expectNoDebugApp(t, 0)
			return
		}
		events := c.listen(t, d.task.ID())
		all := c.everyEvent(t)
		if ps := d.debug(t, "ps", "-o", "pid,args").must(t); !strings.Contains(ps.stdout, "    1 /service serve 7777") {
			t.Errorf("processes: %s", ps.stdout)
		}
		d.debug(t, "nc", "127.0.0.1", "7777").must(t).mustSay(t, "it works\n")
		d.debug(t, "ls", "/proc/1/root").must(t).mustContain(t, "service")
		d.debug(t, "sh", "-c", "exit 42").mustExit(t, 42)
		if r := c.rktctlWith(t, strings.NewReader("through the fifo\n"), "debug", d.task.ID(), "-i", "--image", image.BusyboxName, "--", "cat"); r.code != 0 || r.stdout != "through the fifo\n" {
			t.Errorf("%+v", r)
		}
		if r := d.debug(t, "/no/such/program"); r.code == 0 || !strings.Contains(r.stderr, "/no/such/program") {
			t.Errorf("%+v", r)
		}
		if pids, err := d.task.Pids(c.context(t)); err != nil || len(pids) != 1 {
			t.Errorf("containerd's processes of the container: %v, %v", pids, err)
		}
		// On a busy machine the events of the container's own start are still on their way when the
		// subscriptions begin.
		late := func(event string) bool {
			topic, text, _ := strings.Cut(event, " ")
			return event == "create" || event == "start" ||
				(topic == "/tasks/create" || topic == "/tasks/start") && strings.Contains(text, d.task.ID())
		}
		for _, of := range [][]string{events.words(), all()} {
			if of = slices.DeleteFunc(of, late); len(of) > 0 {
				t.Errorf("events: %q", of)
			}
		}
		story := c.rktctl(t, "events", d.task.ID()).must(t).stdout
		if !strings.Contains(story, image.BusyboxName+" sha256:") || !strings.Contains(story, "ended after") {
			t.Errorf("the journal: %s", story)
		}
		d.expectNoDebugApp(t, 0)
		for line := range strings.Lines(read(t, "/proc/self/mounts")) {
			if strings.Contains(line, dataDir(c.daemon.Dir())+"/debug/") {
				t.Errorf("a mount of a debug app is left: %s", line)
			}
		}
		c.killAndDrop(t, d.task)
	})
}

// everyEvent returns a function that returns the texts of all events of the namespace since.
func (c *column) everyEvent(t *testing.T) func() []string {
	t.Helper()
	ctx, cancel := context.WithCancel(c.context(t))
	envelopes, _ := c.client.EventService().Subscribe(ctx)
	var texts []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case e := <-envelopes:
				texts = append(texts, e.Topic+" "+string(e.Event.GetValue()))
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() []string {
		cancel()
		<-done
		return texts
	}
}

// A target may be hostile: the debug app has its privileges and its namespaces, and the host
// gives it nothing else.
func TestADebugAppHasNoMoreThanItsTarget(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		few := oci.WithCapabilities([]string{"CAP_CHOWN", "CAP_KILL"})
		d := c.service(t, few, oci.WithUIDGID(1000, 1000), oci.WithNoNewPrivileges)
		cmd := d.begin(t, "exec sleep 1000")
		pid, target := d.debugApp(t), int(d.task.Pid())
		for _, field := range []string{"Uid", "Gid", "CapBnd", "CapEff", "CapPrm", "CapInh", "CapAmb", "NoNewPrivs"} {
			if its, of := statusOf(t, pid, field), statusOf(t, target, field); its != of {
				t.Errorf("%s: %s, of the target: %s", field, its, of)
			}
		}
		for _, kind := range []string{"pid", "net", "ipc", "uts", "user"} {
			if its, of := namespace(t, pid, kind), namespace(t, target, kind); its != of {
				t.Errorf("%s namespace: %s, of the target: %s", kind, its, of)
			}
		}
		if namespace(t, pid, "mnt") == namespace(t, target, "mnt") || namespace(t, pid, "mnt") == namespace(t, os.Getpid(), "mnt") {
			t.Error("it has no mount namespace of its own")
		}
		files, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
		if err != nil || len(files) != 3 {
			t.Errorf("descriptors: %v, %v", files, err)
		}
		for _, f := range files {
			if to, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/fd/" + f.Name()); !strings.HasPrefix(to, "pipe:") && to != "/dev/null" && to != "/null" {
				t.Errorf("descriptor %s is %s", f.Name(), to)
			}
		}
		if adj := strings.TrimSpace(read(t, "/proc/"+strconv.Itoa(pid)+"/oom_score_adj")); adj != "1000" {
			t.Errorf("its OOM score is adjusted by %s", adj)
		}
		if r := c.rktctl(t, "debug", d.task.ID(), "--image", image.BusyboxName, "--user", "0", "--", "grep", "Cap", "/proc/self/status"); r.code != 0 || !strings.Contains(r.stdout, "CapEff:\t0000000000000021") {
			t.Errorf("as root: %+v", r)
		}
		// rktctl that is killed takes its app with it.
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		d.expectNoDebugApp(t, pid)
		c.killAndDrop(t, d.task)
	})
}

func TestTheLastDeleteEndsADebugApp(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		// The target shares the host's PID namespace, so the kernel does not end the debug app.
		d := c.service(t, oci.WithHostNamespace(specs.PIDNamespace))
		cmd := d.begin(t, "trap '' TERM INT HUP; sleep 1000 & sleep 1000")
		pid := d.debugApp(t)
		exited := c.wait(t, d.task)
		kill(t, c.context(t), d.task, syscall.SIGKILL)
		expectExit(t, exited, 137)
		if !alive(pid) {
			t.Error("the debug app has ended with its target's process, which is not its init")
		}
		c.drop(t, d.task)
		if alive(pid) {
			t.Error("the debug app is alive after the last Delete")
		}
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 137 {
			t.Errorf("exit code %d of rktctl", code)
		}
		c.expectNothingLeft(t)
	})
}

// If the shim dies, containerd's call of delete removes the debug app with its target.
func TestACollectorEndsADebugApp(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		d := c.service(t, oci.WithHostNamespace(specs.PIDNamespace))
		cmd := d.begin(t, "trap '' TERM; sleep 1000 & sleep 1000")
		pid := d.debugApp(t)
		must(t, syscall.Kill(c.shim(t, d.task.ID()), syscall.SIGKILL))
		wait.Observe(t, "the debug app is dead", func() (bool, string) { return !alive(pid), "" })
		if err := cmd.Wait(); err == nil {
			t.Error("rktctl has not noticed")
		}
		d.expectNoDebugApp(t, pid)
		wait.Observe(t, "containerd has deleted the task", func() (bool, string) {
			_, err := d.task.Status(c.context(t))
			return err != nil, ""
		})
		container, err := c.client.LoadContainer(c.context(t), d.task.ID())
		if err == nil {
			err = container.Delete(c.context(t), containerd.WithSnapshotCleanup)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

func TestStoppingASandboxEndsADebugApp(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		b := c.startBox(t, &cri.PodSandboxConfig{})
		task := b.runMember(t, []string{"testprog", "sleep", "1000"})
		d := &debugged{c, task.ID(), task}
		cmd := d.begin(t, "trap '' TERM; sleep 1000 & sleep 1000")
		pid := d.debugApp(t)
		if ours, theirs := namespace(t, pid, "net"), namespace(t, b.pid, "net"); ours != theirs {
			t.Errorf("network namespace %s, of the sandbox: %s", ours, theirs)
		}
		if err := b.controller.Stop(c.context(t), b.id); err != nil {
			t.Fatal(err)
		}
		if alive(pid) {
			t.Error("the debug app is alive after StopSandbox")
		}
		_ = cmd.Wait()
		c.drop(t, task)
		if err := b.controller.Shutdown(c.context(t), b.id); err != nil {
			t.Fatal(err)
		}
	})
}
