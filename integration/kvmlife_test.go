package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// life is a pod of two containers in one machine.
type life struct {
	group      string
	dir        string // of the pod
	supervisor int    // the pid of run
	tasks      []containerd.Task
	exited     []<-chan containerd.ExitStatus
	events     []*taskEvents
}

func (c *column) life(t *testing.T, opts ...oci.SpecOpts) *life {
	t.Helper()
	l := &life{group: "group-" + c.id()}
	// A machine that hangs is given two minutes.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.context(t)), 10*time.Minute*wait.Slowness)
	t.Cleanup(cancel)
	for range 2 {
		container := c.container(t, []string{"sleep", "1000"}, append(slices.Clone(opts), group(l.group))...)
		l.events = append(l.events, c.listen(t, container.ID()))
		task := c.newTask(t, container, cio.NullIO)
		exited, err := task.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := task.Start(c.context(t)); err != nil {
			t.Fatal(err)
		}
		l.tasks, l.exited = append(l.tasks, task), append(l.exited, exited)
	}
	dir, record := c.pod(t, l.group)
	l.dir, l.supervisor = dir, record.Supervisor.PID
	return l
}

// child returns the process of run with a name.
func (l *life) child(t *testing.T, name string) int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", l.supervisor))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		for _, pid := range strings.Fields(read(t, f)) {
			if comm, _ := os.ReadFile("/proc/" + pid + "/comm"); strings.HasPrefix(string(comm), name) {
				var n int
				if _, err := fmt.Sscan(pid, &n); err == nil {
					return n
				}
			}
		}
	}
	t.Fatalf("run has no process %s", name)
	return 0
}

// The lines of the table "Life" in docs/stage1-kvm.md that are about the end of a machine. However it ends, each
// of its containers has 137, Delete works, and nothing is left.
func TestHoweverAMachineEndsItsContainersHave137AndNothingIsLeft(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		for name, end := range map[string]struct {
			by   func(*testing.T, *life)
			says string // in the messages of run; "": run was killed
		}{
			"the kernel panics": {func(t *testing.T, l *life) {
				_ = c.exec(t, nil, l.tasks[0].ID(), "sh", "-c", "echo c >/proc/sysrq-trigger") // has no answer
			}, "Kernel panic"},
			"QEMU is killed":  {func(t *testing.T, l *life) { sendSignal(t, l.child(t, "qemu-system"), syscall.SIGKILL) }, "the machine has ended"},
			"the guest hangs": {func(t *testing.T, l *life) { sendSignal(t, l.child(t, "qemu-system"), syscall.SIGSTOP) }, "the machine has ended"},
			"run is killed":   {func(t *testing.T, l *life) { sendSignal(t, l.supervisor, syscall.SIGKILL) }, ""},
		} {
			t.Run(name, func(t *testing.T) {
				l := c.life(t, oci.WithPrivileged)
				end.by(t, l)
				for i, exited := range l.exited {
					if s := <-exited; s.ExitCode() != 137 || s.Error() != nil {
						t.Errorf("%s has ended with %d, %v", l.tasks[i].ID(), s.ExitCode(), s.Error())
					}
				}
				if end.says != "" {
					wait.Observe(t, "run says why", func() (bool, string) {
						text := read(t, filepath.Join(l.dir, "stage1/rootfs/rkt/kvm.log"))
						return strings.Contains(text, end.says), text
					})
				}
				for _, task := range l.tasks {
					c.drop(t, task)
				}
				c.expectNothingLeft(t)
			})
		}
	})
}

func sendSignal(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}

// fileSystem mounts a file system on a directory, and returns its device. The kernel lets nothing else open that
// with O_EXCL as long as it is mounted in any namespace.
func fileSystem(t *testing.T, dir string) (device string) {
	t.Helper()
	device, _, _ = loopDevice(t, "")
	if out, err := exec.Command("mkfs.ext4", "-q", device).CombinedOutput(); err != nil {
		t.Fatalf("make a file system: %v: %s", err, out)
	}
	if err := errors.Join(os.Mkdir(dir, 0o755), syscall.Mount(device, dir, "ext4", 0, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return device
}

// containerd executes `delete` when the shim has gone. The kernel has then ended what run had started, and
// unmounted the volumes.
func TestDeleteAloneRemovesAPodWhoseShimAndMachineWereKilled(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		volume := t.TempDir()
		below := filepath.Join(volume, "below")
		device := fileSystem(t, below)
		l := c.life(t, oci.WithMounts([]specs.Mount{{Destination: "/volume", Type: "bind", Source: volume, Options: []string{"rbind"}}}))
		c.exec(t, nil, l.tasks[0].ID(), "ls", "/volume/below/lost+found").must(t)
		if err := syscall.Unmount(below, 0); err != nil {
			t.Fatal(err)
		}
		free := func() error {
			f, err := os.OpenFile(device, os.O_RDWR|syscall.O_EXCL, 0)
			f.Close()
			return err
		}
		if err := free(); err == nil {
			t.Error("the machine does not have what was mounted below its volume")
		}
		machine := append(processesWith(t, "virtiofsd", c.daemon.Dir()), l.child(t, "qemu-system"))
		shim := c.shim(t, l.tasks[0].ID())
		sendSignal(t, shim, syscall.SIGSTOP) // it must not see the end of run
		sendSignal(t, l.supervisor, syscall.SIGKILL)
		sendSignal(t, shim, syscall.SIGKILL)
		for _, e := range l.events {
			e.await(t, "delete 137")
		}
		wait.Observe(t, "the processes of the machine have ended", func() (bool, string) {
			living := slices.DeleteFunc(slices.Clone(machine), func(pid int) bool { return !alive(pid) })
			return len(living) == 0, fmt.Sprint(living)
		})
		wait.Observe(t, "the tasks are gone", func() (bool, string) {
			r := c.ctr(t, "task", "ls", "-q").must(t)
			return strings.TrimSpace(r.stdout) == "", r.stdout
		})
		wait.Observe(t, "nothing has mounted the volumes", func() (bool, string) {
			err := free()
			return err == nil, fmt.Sprint(err)
		})
	})
}

// A boot may take minutes on a busy host, and clients give up before.
func TestWhatTheFirstContainerAsksForIsRefusedBeforeItsVMBoots(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		for why, flags := range map[string][]string{
			`linux.namespaces: without "network"`: {"--net-host"},
			"/proc/1/ns/ipc is not of an app":     {"--with-ns", "ipc:/proc/1/ns/ipc"},
			"in the host's proc":                  {"--mount", "type=bind,src=/proc,dst=/host,options=rbind"},
			"has a mount of type":                 {"--mount", "type=bind,src=/,dst=/host,options=rbind"},
			"is a device of type":                 {"--privileged", "--allow-new-privs"},
		} {
			r := c.run(t, append([]string{"--rm"}, flags...), c.id(), "true")
			if r.code == 0 || !strings.Contains(r.stderr, "stage1 kvm: run: ") || !strings.Contains(r.stderr, why) {
				t.Errorf("%q: exit code %d: %s", flags, r.code, r.stderr)
			}
		}
		c.expectNothingLeft(t)
	})
}

// Before make install there is no kernel where a host has it.
func TestAVMWithoutAKernelSaysHowToGetOne(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		for _, accel := range []string{"kvm", "auto", "tcg"} {
			image := filepath.Join(t.TempDir(), "image")
			if err := os.CopyFS(image, os.DirFS(filepath.Join(suite.shims, "stage1/kvm"))); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(image, "rootfs/kvm.json"), fmt.Sprintf(`{"kernel": "/none/vmlinux", "accel": %q}`, accel))
			n := c.asideNode(t)
			n.says("[stage1.kvm]\npath = %q\n", image)
			r := n.run(t, []string{"--rm"}, n.id(), "true")
			if want := "/none/vmlinux is missing: install the package containerd-shim-rkt-kvm or, in a checkout, run make kvm"; r.code == 0 || !strings.Contains(r.stderr, want) {
				t.Errorf("accel %s: exit code %d: %s", accel, r.code, r.stderr)
			}
			n.expectNothingLeft(t)
		}
	})
}

// A machine whose memory is used up ends a process of the container that uses it, as a host does, and the other
// containers go on. They also do so when a proxy is killed, which ends its container.
func TestAMachineWithoutMemoryEndsOneContainer(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		l := c.life(t, oci.WithAnnotations(map[string]string{"io.containerd.rkt.v1/kvm.memory": "256Mi"}))
		greedy := c.container(t, []string{"testprog", "allocate", "1000"}, group(l.group))
		events := c.listen(t, greedy.ID())
		task := c.newTask(t, greedy, cio.NullIO)
		exited := c.wait(t, task)
		if err := task.Start(c.context(t)); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 137)
		events.await(t, "exit init 137")
		if words := events.words(); !slices.Contains(words, "oom") {
			t.Errorf("the events are %q", words)
		}
		c.drop(t, task)

		sendSignal(t, int(l.tasks[0].Pid()), syscall.SIGKILL)
		expectExit(t, l.exited[0], 137)
		c.drop(t, l.tasks[0])
		if got := c.exec(t, nil, l.tasks[1].ID(), "sh", "-c", "ps | grep -c 'sleep 100[0]'").must(t).stdout; got != "1\n" {
			t.Errorf("%q programs of the containers are left in the machine", got)
		}
		c.killAndDrop(t, l.tasks[1])
	})
}
