package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/console"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// ofRkt runs a case with some of rkt's own stage1 images, composed as its makefiles do. Fields
// that these images do not honour are excused.
func ofRkt(t *testing.T, flavors []string, test func(t *testing.T, n *node)) {
	t.Helper()
	aside(t, func(t *testing.T, c *column) {
		images, err := binaries.RktStage1s(t.Context(), os.Stderr)
		if errors.Is(err, exec.ErrNotFound) {
			t.Skipf("rkt's own images cannot be built here: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		n := c.asideNode(t)
		for _, flavor := range flavors {
			t.Run(flavor, func(t *testing.T) {
				if _, err := exec.LookPath("systemd-nspawn"); flavor != "fly" && err != nil {
					t.Skipf("the flavor %s runs systemd-nspawn and systemd of the machine, of Debian's systemd-container, or copies of these: %v", flavor, err)
				}
				own, col := *n, *n.column
				own.column, own.t = &col, t
				own.isOfRkts(flavor, filepath.Join(images, flavor))
				before := hostsTrees(t)
				test(t, &own)
				own.expectNothingLeft(t)
				before.expect(t)
				n.serial = own.serial
			})
		}
	})
}

// isOfRkts makes the node's containers use one of rkt's images.
func (n *node) isOfRkts(flavor, image string) {
	n.t.Helper()
	stage1 := "rkts" + flavor
	link := filepath.Join(suite.shims, "containerd-shim-rkt-"+stage1+"-v1")
	if err := os.Symlink("containerd-shim-rkt-v1", link); err != nil && !os.IsExist(err) {
		n.t.Fatal(err)
	}
	n.runtime = "io.containerd.rkt-" + stage1 + ".v1"
	n.says("[stage1.%s]\npath = %q\naccept = [\"appc\", \"/process/capabilities\", \"/linux/seccomp\", \"/process/noNewPrivileges\"]\n", stage1, image)
}

// trees are the lines of a mount table for /, for /proc, /sys and /dev, and for the mounts below
// these three.
type trees string

// hostsTrees returns the trees of containerd's mount namespace. Cgroups are left out, because
// other programs mount some, too.
func hostsTrees(t *testing.T) trees {
	t.Helper()
	var all strings.Builder
	for line := range strings.Lines(read(t, "/proc/self/mountinfo")) {
		at := strings.Fields(line)[4] + "/"
		if at == "//" || strings.HasPrefix(at, "/dev/") || strings.HasPrefix(at, "/proc/") ||
			strings.HasPrefix(at, "/sys/") && !strings.HasPrefix(at, "/sys/fs/cgroup/") {
			all.WriteString(line)
		}
	}
	return trees(all.String())
}

// expect fails the test unless the lines are as before.
func (before trees) expect(t *testing.T) {
	t.Helper()
	if now := hostsTrees(t); now != before {
		t.Errorf("the mounts where containerd is were\n%s\nand are\n%s", before, now)
	}
}

// aTask creates a task with one of rkt's images.
func (n *node) aTask(t *testing.T, io cio.Creator, args []string, opts ...oci.SpecOpts) client.Task {
	t.Helper()
	return n.newTask(t, n.containerOf(t, n.client, n.image(t, n.client), n.runtime, n.id(), args, opts...), io)
}

// survivesItsShim kills the shim of a running container, and checks that `delete` leaves
// nothing.
func (n *node) survivesItsShim(t *testing.T) {
	t.Helper()
	id := n.id()
	n.run(t, []string{"-d"}, id, "sleep", "1000").must(t)
	dir, _ := n.pod(t, id)
	if mounts := read(t, "/proc/self/mountinfo"); strings.Contains(mounts, dir+"/") {
		t.Errorf("something is mounted below %s where containerd is", dir)
	}
	must(t, syscall.Kill(n.shim(t, id), syscall.SIGKILL))
	n.shimCollected(t, id)
}

// shimCollected waits until containerd has noticed that a task's shim has died, and deletes the task.
func (n *node) shimCollected(t *testing.T, id string) {
	t.Helper()
	wait.Observe(t, "the task is gone", func() (bool, string) {
		r := n.ctr(t, "task", "ls")
		return !strings.Contains(r.stdout, id+" ") || strings.Contains(r.stdout, "STOPPED"), r.stdout
	})
	n.ctr(t, "task", "delete", "--force", id)
	n.ctr(t, "container", "delete", id).must(t)
}

// endsWithItsPod kills the process of `run`, and checks that the container and all its
// processes end.
func (n *node) endsWithItsPod(t *testing.T) {
	t.Helper()
	task := n.aTask(t, cio.NullIO, []string{"sh", "-c", "testprog ignore-term & testprog ignore-term & wait"})
	exited := n.wait(t, task)
	ctx := n.context(t)
	must(t, task.Start(ctx))
	var all []client.ProcessInfo
	wait.Observe(t, "its processes run", func() (bool, string) {
		var err error
		all, err = task.Pids(ctx)
		return err == nil && len(all) >= 3, fmt.Sprint(all, err)
	})
	dir, _ := n.pod(t, task.ID())
	text, err := os.ReadFile(filepath.Join(dir, "ppid"))
	if os.IsNotExist(err) {
		text, err = os.ReadFile(filepath.Join(dir, "pid"))
	}
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	expectExit(t, exited, 137)
	expectEnd(t, all)
	n.drop(t, task)
}

// expectEnd waits for the end of processes.
func expectEnd(t *testing.T, all []client.ProcessInfo) {
	t.Helper()
	wait.Observe(t, "all processes have ended", func() (bool, string) {
		var left []string
		for _, p := range all {
			if alive(int(p.Pid)) {
				left = append(left, fmt.Sprint(p.Pid))
			}
		}
		return len(left) == 0, strings.Join(left, " ")
	})
}

// refusesASecondContainer expects that a second container in a pod is refused.
func (n *node) refusesASecondContainer(t *testing.T) {
	t.Helper()
	first := n.id()
	n.run(t, inGroup(first, "-d"), first, "sleep", "1000").must(t)
	if r := n.run(t, inGroup(first, "--rm"), n.id(), "true"); r.code == 0 || !strings.Contains(r.stderr, "immutable") {
		t.Errorf("a second container: exit code %d, %s", r.code, r.stderr)
	}
	n.ends(first)
}

// refusesMissingPrograms expects that programs that do not exist are refused.
func (n *node) refusesMissingPrograms(t *testing.T) {
	t.Helper()
	n.refusesProgram(t, "nosuchprogram", "executable file not found in $PATH")
	n.refusesProgram(t, "/no/such", "no such file or directory")
}

// refusesProgram expects that a program that cannot be executed is refused.
func (n *node) refusesProgram(t *testing.T, program, words string) {
	t.Helper()
	if r := n.run(t, []string{"--rm"}, n.id(), program); r.code == 0 || !strings.Contains(r.stderr, words) {
		t.Errorf("%s: exit code %d, %s; want %q", program, r.code, r.stderr, words)
	}
}

// bothSizes is a script that waits for the first size of a terminal, and then for another one.
const bothSizes = `test -t 1 || exit 1
for size in "31 97" "40 100"; do until [ "$(stty size)" = "$size" ]; do sleep 0.1; done; echo "it was $size"; done; exit 5`

// hasTerminals runs a program at a terminal whose size changes.
func (n *node) hasTerminals(t *testing.T) {
	t.Helper()
	term := newTerminal(t, 31, 97)
	ended := n.atTerminal(t, term, n.runArgs([]string{"--rm", "--tty"}, n.id(), "sh", "-c", bothSizes)...)
	term.await(t, "it was 31 97")
	wait.Observe(t, "the program sees another size", func() (bool, string) {
		for _, width := range []uint16{99, 100} { // ctr misses a change before it listens for them
			must(t, term.master.Resize(console.WinSize{Height: 40, Width: width}))
		}
		return strings.Contains(term.text(), "it was 40 100"), term.text()
	})
	if code := ended(); code != 5 {
		t.Errorf("exit code %d, want 5; on the terminal is %q", code, term.text())
	}
}
