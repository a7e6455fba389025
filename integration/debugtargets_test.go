package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/console"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

func TestRktctlDebugsAtATerminal(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		d := c.service(t)
		term := newTerminal(t, 33, 99)
		cmd := exec.CommandContext(c.context(t), filepath.Join(suite.shims, "rktctl"), "debug", d.task.ID(), "-i", "-t", "--image", image.BusyboxName, "--", "sh")
		cmd.Env = append(os.Environ(), "RKT_DATA_DIR="+dataDir(c.daemon.Dir()))
		cmd.Stdin, cmd.Stdout, cmd.Stderr = term.slave, term.slave, term.slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		must(t, cmd.Start())
		term.enter(t, "until testprog winsize | grep '33 99'; do sleep 0.1; done; test -t 0 && test -t 1 && echo at a$NOTHING terminal\r")
		term.await(t, "\n33 99\n")
		term.await(t, "\nat a terminal\n")
		must(t, term.master.Resize(console.WinSize{Height: 11, Width: 77}))
		term.enter(t, "until testprog winsize | grep '11 77'; do sleep 0.1; done; sh -c 'echo beg$NOTHING\"un\"; exec sleep 1000'\r")
		term.await(t, "\n11 77\n")
		term.await(t, "\nbegun\n")
		term.enter(t, "\x03") // ends the program in the foreground, and not rktctl
		term.enter(t, "echo interr$NOTHING'upted'; exit 6\r")
		term.await(t, "\ninterrupted\n")
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 6 {
			t.Errorf("exit code %d", code)
		}
		d.expectNoDebugApp(t, 0)
	})
}

// The debug app is in the target's user namespace: it is root there, and nobody on the host.
func TestRktctlDebugsAContainerInAUserNamespace(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		if !slices.Contains(c.features(t).Linux.Namespaces, "user") {
			t.Skip("the stage1 declares no user namespaces")
		}
		ids := []specs.LinuxIDMapping{{HostID: 100_000, Size: 65_536}}
		ctx, id, img := c.context(t), c.id(), c.bareImage(t)
		spec := []oci.SpecOpts{oci.WithImageConfig(img), oci.WithProcessArgs("/service", "serve", "7777", "it works"), oci.WithUserNamespace(ids, ids)}
		container, err := c.client.NewContainer(ctx, id, containerd.WithUserNSRemappedSnapshot(id, img, ids, ids), containerd.WithNewSpec(spec...), containerd.WithRuntime(c.runtime, nil))
		if err != nil {
			t.Fatal(err)
		}
		task := c.newTask(t, container, cio.NullIO)
		must(t, task.Start(ctx))
		d := &debugged{c, id, task}
		if r := d.debug(t, "sh", "-c", "cat /proc/self/uid_map; id -u; ps -o pid,args").must(t); strings.Join(strings.Fields(r.stdout)[:4], " ") != "0 100000 65536 0" ||
			!strings.Contains(r.stdout, "    1 /service serve 7777") {
			t.Errorf("%s", r.stdout)
		}
		d.debug(t, "ls", "/proc/1/root").must(t).mustContain(t, "service")
		d.debug(t, "sh", "-c", "echo of its own > /file && cat /file").must(t).mustSay(t, "of its own\n")
		cmd := d.begin(t, "exec sleep 1000")
		pid, target := d.debugApp(t), int(d.task.Pid())
		for _, kind := range []string{"user", "pid", "net", "ipc", "uts"} {
			if its, of := namespace(t, pid, kind), namespace(t, target, kind); its != of {
				t.Errorf("%s namespace: %s, of the target: %s", kind, its, of)
			}
		}
		for _, field := range []string{"Uid", "Gid", "CapBnd", "CapEff"} {
			if its, of := statusOf(t, pid, field), statusOf(t, target, field); its != of {
				t.Errorf("%s: %s, of the target: %s", field, its, of)
			}
		}
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		d.expectNoDebugApp(t, pid)
	})
}

// Two operators look at one container. Neither hinders the other, and the last Delete ends both.
func TestTwoDebugAppsOfOneContainer(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		d := c.service(t, oci.WithHostNamespace(specs.PIDNamespace))
		first := d.begin(t, "exec sleep 1000")
		pid := d.debugApp(t)
		others := make([]*exec.Cmd, 2)
		for i := range others {
			others[i] = d.begin(t, "trap '' TERM; sleep 1000 & sleep 1000")
		}
		apps := d.debugApps(t)
		if len(apps) != 3 {
			t.Fatalf("debug apps: %v", apps)
		}
		if r := c.rktctl(t, "debug", d.task.ID(), "--target", onlyKey(t, apps, pid), "--image", image.BusyboxName); r.code != 1 || !strings.Contains(r.stderr, "cannot be debugged itself") {
			t.Errorf("a debug app as the target: %+v", r)
		}
		must(t, first.Process.Signal(syscall.SIGTERM))
		_ = first.Wait()
		if code := first.ProcessState.ExitCode(); code != 143 {
			t.Errorf("exit code %d of the first one", code)
		}
		left := d.debugApps(t)
		if alive(pid) || len(left) != 2 {
			t.Errorf("the first one has ended, and its process %d and %v are left", pid, left)
		}
		for id, pid := range left {
			if apps[id] != pid || !alive(pid) {
				t.Errorf("%s has the process %d, and had %d", id, pid, apps[id])
			}
		}
		d.debug(t, "true").must(t)
		c.killAndDrop(t, d.task)
		for id, pid := range left {
			if alive(pid) {
				t.Errorf("%s is alive after the last Delete", id)
			}
		}
		for _, cmd := range others {
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 137 {
				t.Errorf("exit code %d of rktctl", code)
			}
		}
		c.expectNothingLeft(t)
	})
}

// debugApps returns the first processes of the pod's debug apps, by their ids.
func (d *debugged) debugApps(t *testing.T) map[string]int {
	t.Helper()
	apps := map[string]int{}
	for _, a := range d.shown(t, d.id).Apps {
		if strings.HasPrefix(a.ID, "rktctl-") {
			apps[a.ID] = a.Process.PID
		}
	}
	return apps
}

func onlyKey(t *testing.T, apps map[string]int, pid int) string {
	t.Helper()
	for id, its := range apps {
		if its == pid {
			return id
		}
	}
	t.Fatalf("none of %v has the process %d", apps, pid)
	return ""
}

// A pod of CRI, with a pause container and without one: the debug app is below the pod's cgroup
// and in the target's namespaces, CRI does not see it, and StopPodSandbox ends it.
func TestRktctlDebugsAContainerOfCRI(t *testing.T) {
	needOurs(t)
	for _, d := range newDropIns[:2] {
		t.Run(d.sandboxer, func(t *testing.T) {
			t.Parallel()
			n := newStage1Node(t, d, "")
			parent := fmt.Sprintf("/rkt-it-%d-debug-%s", os.Getpid(), d.sandboxer)
			t.Cleanup(func() { removeCgroup(t, parent) })
			config := n.config(nil)
			config.Linux.CgroupParent = parent
			pod, err := n.runPod(config)
			if err != nil {
				t.Fatal(err)
			}
			if err := n.runContainer(pod, config, "web", nil); err != nil {
				t.Fatal(err)
			}
			list, err := n.runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
			if err != nil || len(list.GetContainers()) != 1 {
				t.Fatalf("%v, %v", list, err)
			}
			id := list.GetContainers()[0].GetId()
			look := &debugged{&column{name: "native", daemon: n.Daemon}, id, nil}
			look.debug(t, "ps", "-o", "args").must(t).mustContain(t, "\ntestprog sleep 100000\n")
			cmd := look.begin(t, "trap '' TERM; sleep 1000 & sleep 1000")
			pid := look.debugApp(t)
			if text := read(t, fmt.Sprintf("/proc/%d/cgroup", pid)); !strings.Contains(text, parent+"/rktctl-") {
				t.Errorf("the debug app is not below the pod's cgroup %s:\n%s", parent, text)
			}
			again, err := n.runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
			if err != nil || len(again.GetContainers()) != 1 {
				t.Errorf("CRI sees %v, %v", again, err)
			}
			if _, err := n.runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: pod}); err != nil {
				t.Error(err)
			}
			if alive(pid) {
				t.Error("the debug app is alive after StopPodSandbox")
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 137 {
				t.Errorf("exit code %d of rktctl", code)
			}
			n.removePod(pod)
			n.expectNothing("the pod")
		})
	}
}

// A stage1 that makes no further app in a pod, or keeps its apps where the host cannot join
// them, is refused by name, and nothing of the attempt is left.
func TestStage1sThatCannotHaveDebugAppsAreRefusedByName(t *testing.T) {
	machine := machineOf(t)
	for name, at := range map[string]struct {
		node    func(*testing.T, *column) *node
		program []string
		why     string
	}{
		"fly": {func(t *testing.T, c *column) *node {
			n := c.asideNode(t)
			n.runtime = "io.containerd.rkt-fly.v1"
			n.says("[stage1.fly]\npath = %q\naccept = [\"appc\", \"/process/capabilities\", \"/linux/seccomp\"]\n", filepath.Join(suite.shims, "stage1/fly"))
			return n
		}, []string{"testprog", "sleep", "1000"}, "its stage1 fly adds no app to a running pod"},
		"machine": {func(t *testing.T, c *column) *node { return c.machineNode(t, machine) },
			[]string{"tick"}, "its stage1 machine keeps its apps in namespaces of its own"},
	} {
		t.Run(name, func(t *testing.T) {
			aside(t, func(t *testing.T, c *column) {
				n := at.node(t, c)
				d := &debugged{column: n.column, task: n.running(t, at.program)}
				d.id = d.task.ID()
				r := d.debug(t, "true")
				if r.code != 1 || r.stdout != "" || !strings.Contains(r.stderr, "container "+d.id+" cannot be debugged: "+at.why) {
					t.Errorf("%+v", r)
				}
				d.expectNoDebugApp(t, 0)
				expectStatus(t, n.context(t), d.task, containerd.Running)
			})
		})
	}
}
