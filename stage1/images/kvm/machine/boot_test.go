package machine_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/proc/nofile"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
)

func TestAMachineBootsAndPowersOff(t *testing.T) {
	c, g := config(t)
	boot(t, c, g)
	if got := g.ask("cpus"); got != "1" {
		t.Errorf("the guest has %s processors", got)
	}
	// The kernel gives its first process the arguments that it does not know.
	if kernel, process := g.ask("read", "/proc/cmdline"), g.ask("read", "/proc/1/cmdline"); !strings.Contains(kernel, " no_timer_check") || strings.Contains(process, "no_timer_check") {
		t.Errorf("an emulated guest looks at once whether its timer ticks: arguments of the kernel %q, of its first process %q", kernel, process)
	}
	g.ask("print", "to-the-console")
	wait.Until(t, "the console has the guest's text", func() bool { return strings.Contains(g.console.String(), "to-the-console") })
	if _, err := io.WriteString(g.to, "poweroff\n"); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the machine ends", g.Done())
	if err := g.Err(); err != nil {
		t.Error(err)
	}
}

func share(t *testing.T, c *machine.Config) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	c.Shares = []machine.Share{{Tag: "pod", Dir: dir}}
	return dir
}

func TestAGuestSeesWhatIsMountedBelowAShareLater(t *testing.T) {
	c, g := config(t)
	dir := share(t, &c)
	write(t, filepath.Join(dir, "before"), "first")
	boot(t, c, g)
	if got := g.ask("mkdir", "/pod") + g.ask("mount", "pod", "/pod", "virtiofs"); got != "" {
		t.Fatal(got)
	}
	if got := g.ask("read", "/pod/before"); got != "first" {
		t.Errorf("the guest reads %q", got)
	}

	volume, at := t.TempDir(), filepath.Join(dir, "volume")
	write(t, filepath.Join(volume, "file"), "second")
	if err := errors.Join(os.Mkdir(at, 0o755), unix.Mount(volume, at, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	if got := g.ask("read", "/pod/volume/file"); got != "second" {
		t.Errorf("the guest reads %q", got)
	}
	if got := g.ask("write", "/pod/volume/answer", "third"); got != "" {
		t.Error(got)
	}
	if got, err := os.ReadFile(filepath.Join(volume, "answer")); err != nil || string(got) != "third" {
		t.Errorf("the guest has written %q: %v", got, err)
	}
	// The guest sees nothing above the share.
	if got := g.ask("list", "/pod/.."); strings.Contains(got, "before") || !strings.Contains(got, "modules") {
		t.Errorf("above the share the guest sees %q", got)
	}
}

// nerdctl's hook writes /etc/hosts like this: the guest had seen that the file was empty.
func TestAGuestReadsWhatTheHostHasWrittenAMomentBefore(t *testing.T) {
	c, g := config(t)
	dir := share(t, &c)
	file := filepath.Join(dir, "file")
	write(t, file, "")
	boot(t, c, g)
	if got := g.ask("mkdir", "/pod") + g.ask("mount", "pod", "/pod", "virtiofs"); got != "" {
		t.Fatal(got)
	}
	for _, content := range []string{"", "first", "second, and longer", "third", "FOURTH"} {
		write(t, file, content)
		if got := g.ask("read", "/pod/file"); got != content {
			t.Errorf("the guest reads %q of a file with %q", got, content)
		}
	}
	// The next file has the name of another one, as with a ConfigMap's link.
	for _, content := range []string{"a", "another"} {
		next := filepath.Join(dir, "next")
		write(t, next, content)
		if err := os.Rename(next, file); err != nil {
			t.Fatal(err)
		}
		if got := g.ask("read", "/pod/file"); got != content {
			t.Errorf("the guest reads %q of a file that was replaced by %q", got, content)
		}
	}
}

// The host does not have the tree at the path, and no thread of this process keeps the copies of the host's
// mounts with which virtiofsd has started.
func TestAShareMayBeAMountThatOnlyVirtiofsdHas(t *testing.T) {
	c, g := config(t)
	dir := share(t, &c)
	write(t, filepath.Join(dir, "before"), "first")
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	c.Shares = []machine.Share{{Tag: "pod", Dir: t.TempDir(), Tree: os.NewFile(uintptr(tree), dir)}}
	boot(t, c, g)
	if got := g.ask("mkdir", "/pod") + g.ask("mount", "pod", "/pod", "virtiofs"); got != "" {
		t.Fatal(got)
	}
	volume, at := t.TempDir(), filepath.Join(dir, "volume")
	write(t, filepath.Join(volume, "file"), "second")
	if err := errors.Join(os.Mkdir(at, 0o755), unix.Mount(volume, at, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	if got := g.ask("read", "/pod/before") + " " + g.ask("read", "/pod/volume/file"); got != "first second" {
		t.Errorf("the guest reads %q", got)
	}
	if files, err := os.ReadDir(c.Shares[0].Dir); err != nil || len(files) > 0 {
		t.Errorf("the host has %v in the directory of the share, %v", files, err)
	}
	threads, err := filepath.Glob("/proc/self/task/*/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	others := 0
	for _, path := range threads {
		if ns, err := os.Readlink(path); err == nil && ns != own {
			others++
		}
	}
	if others != 1 { // QEMU's jail
		t.Errorf("%d threads are in other mount namespaces", others)
	}
	// Nor does virtiofsd, which has two processes.
	servers := processes(t, os.Getpid(), "virtiofsd")
	if len(servers) != 2 {
		t.Errorf("virtiofsd has the processes %v", servers)
	}
	for _, pid := range servers {
		mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(mounts)) {
			if at := strings.Fields(line)[4]; at != "/" && at != "/volume" {
				t.Errorf("process %d of virtiofsd has the mount %s", pid, line)
			}
		}
	}
	// When the host removes the place of a mount, the guest loses it.
	if err := errors.Join(unix.Unmount(at, unix.MNT_DETACH), os.Remove(at)); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the guest no longer has the mount", func() bool { return !strings.Contains(g.ask("list", "/pod"), "volume") })
}

// processes returns the processes with a name that a process has started, and those that these have started.
func processes(t *testing.T, parent int, name string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file) // the thread may have ended
		for _, word := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(comm)) == name {
				pids = append(append(pids, pid), processes(t, pid, name)...)
			}
		}
	}
	return pids
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestQEMUIsInTheJail(t *testing.T) {
	c, g := config(t)
	boot(t, c, g)
	in := "/proc/" + strconv.Itoa(g.PID())
	status, err := os.ReadFile(in + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "Groups:\t \n"} {
		if !strings.Contains(string(status), line) {
			t.Errorf("without %q: %s", line, status)
		}
	}
	if strings.Contains(string(status), "Uid:\t0\t") || strings.Contains(string(status), "Gid:\t0\t") {
		t.Errorf("QEMU is root: %s", status)
	}
	if entries, err := os.ReadDir(in + "/root"); err != nil || len(entries) > 0 {
		t.Errorf("its root has %v: %v", entries, err)
	}
	if mounts, err := os.ReadFile(in + "/mountinfo"); err != nil || strings.Count(string(mounts), "\n") > 1 {
		t.Errorf("its mounts are %s: %v", mounts, err)
	}
	for _, ns := range []string{"mnt", "net", "ipc", "uts", "pid", "cgroup"} {
		theirs, err := os.Readlink(in + "/ns/" + ns)
		ours, _ := os.Readlink("/proc/self/ns/" + ns)
		if err != nil || theirs == ours {
			t.Errorf("its namespace is %s: %v", theirs, err)
		}
	}
	expectNoFiles(t, g.PID())
}

// expectNoFiles looks that a QEMU has no file of the host open.
func expectNoFiles(t *testing.T, pid int) {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(fds) == 0 {
		t.Fatal(fds, err)
	}
	for _, fd := range fds {
		// The guest's memory is the file /guest of a tmpfs of its own.
		if to, _ := os.Readlink(fd); strings.HasPrefix(to, "/") && to != "/dev/null" && !strings.HasPrefix(to, "/memfd:") && to != "/guest" {
			t.Errorf("QEMU has %s open", to)
		}
	}
}

func TestTheProcessesOfAMachineAreInItsCgroup(t *testing.T) {
	c, g := config(t)
	dir := share(t, &c)
	above := "/sys/fs/cgroup/pids" // of version 1
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		above = "/sys/fs/cgroup"
	}
	cgroup := filepath.Join(above, "rkt-machine-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(cgroup, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the machine has ended
		wait.Observe(t, "the cgroup can be removed", func() (bool, string) {
			err := unix.Rmdir(cgroup)
			return err == nil, fmt.Sprint(err)
		})
	})
	c.Cgroup = []string{cgroup}
	boot(t, c, g)
	text, err := os.ReadFile(filepath.Join(cgroup, "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	all := machineProcesses(t, dir, g.PID(), os.Getpid())
	if got := strings.Fields(string(text)); len(got) != len(all) {
		t.Errorf("the cgroup has the processes %q", got)
	}
	for name, pid := range all {
		if !slices.Contains(strings.Fields(string(text)), strconv.Itoa(pid)) {
			t.Errorf("%s is not in the cgroup", name)
		}
	}
	var limit unix.Rlimit
	if err := unix.Prlimit(all["virtiofsd's child"], unix.RLIMIT_NOFILE, nil, &limit); err != nil || limit.Cur != min(nofile.Original[1], 1_000_000) {
		t.Errorf("virtiofsd may have %d files open: %v", limit.Cur, err)
	}
}

// The processes of a machine end together, whichever ends first.
func TestNoProcessOfAMachineOutlivesAnother(t *testing.T) {
	for _, name := range []string{"qemu", "virtiofsd", "virtiofsd's child"} {
		t.Run(name, func(t *testing.T) {
			c, g := config(t)
			dir := share(t, &c)
			boot(t, c, g)
			all := machineProcesses(t, dir, g.PID(), os.Getpid())
			if len(all) != 3 {
				t.Fatalf("the processes are %v", all)
			}
			victim := all[name]
			if err := unix.Kill(victim, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			wait.For(t, "the machine ends", g.Done())
			if g.Err() == nil {
				t.Error("the end has no reason")
			}
			for name, pid := range all {
				wait.Until(t, name+" has ended", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
			}
		})
	}
}

func TestNoProcessOfAMachineOutlivesTheOneThatHasBootedIt(t *testing.T) {
	c, _ := config(t)
	dir := share(t, &c)
	channel, console := c.Channel, c.Console
	c.Children, c.Channel, c.Console = nil, nil, nil
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	booter, err := machine.Children.Start([]string{"/proc/self/exe"}, &os.ProcAttr{
		Env: []string{"RKT_TEST_BOOT=" + string(text)}, Files: []*os.File{nil, w, os.Stderr, channel, console},
	})
	proc.CloseFiles(w, channel, console)
	if err != nil {
		t.Fatal(err)
	}
	defer booter.Drop()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	qemu, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(line)
	}
	all := machineProcesses(t, dir, qemu, booter.PID())
	booter.Drop()
	for name, pid := range all {
		wait.Until(t, name+" has ended", func() bool {
			stat, err := proc.ReadStat(pid)
			return err != nil || stat.State == 'Z' // its new parent may be slow
		})
	}
}

// machineProcesses returns the pids of QEMU, of the virtiofsd of a directory, which the process booter
// has started, and of its child.
func machineProcesses(t *testing.T, dir string, qemu, booter int) map[string]int {
	t.Helper()
	found := map[string]int{"qemu": qemu}
	wait.Until(t, "virtiofsd has a child", func() bool {
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range lines {
			line, _ := os.ReadFile(path)
			if !strings.Contains(string(line), "source="+dir+"\x00") {
				continue
			}
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				t.Fatal(err)
			}
			if parent, _ := proc.Parent(pid); parent == booter {
				found["virtiofsd"] = pid
			} else {
				found["virtiofsd's child"] = pid
			}
		}
		return len(found) == 3
	})
	return found
}

func TestAMachineThatCannotBootLeavesNothing(t *testing.T) {
	c, _ := config(t)
	dir := share(t, &c)
	c.KernelSum = strings.Repeat("0", 64)
	if m, err := machine.Boot(t.Context(), c); err == nil || !strings.Contains(err.Error(), "vmlinux has the SHA-256 sum ") {
		t.Fatalf("booted %v: %v", m, err)
	}
	c, _ = config(t)
	c.Shares = []machine.Share{{Tag: "pod", Dir: dir}}
	c.Kernel = c.Modules // no kernel
	_, err := machine.Boot(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "qemu-system-x86_64 has exited with 1: ") {
		t.Errorf("the error is %v", err)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		if line, _ := os.ReadFile(path); strings.Contains(string(line), "source="+dir+"\x00") {
			t.Errorf("left: %q", line)
		}
	}
}

func TestAMachineThatIsStoppedEndsWithoutAnError(t *testing.T) {
	c, g := config(t)
	share(t, &c)
	boot(t, c, g)
	for range 2 {
		if err := g.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := g.Err(); err != nil {
		t.Error(err)
	}
}

func TestAPanicOfTheGuestEndsTheMachine(t *testing.T) {
	c, g := config(t)
	boot(t, c, g)
	if _, err := io.WriteString(g.to, "exit\n"); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the machine ends", g.Done())
	if err := g.Err(); err == nil || !strings.Contains(err.Error(), "panics") {
		t.Errorf("the machine has ended with %v", err)
	}
	wait.Until(t, "the console has the panic", func() bool { return strings.Contains(g.console.String(), "Kernel panic") })
}
