package integration

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/cio"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// disk is a file system of a test's own that the test can make unusable.
type disk struct {
	name  string
	short string
	mount func(t *testing.T, dir string)
	// fail makes every write to the file system fail with the error why.
	fail func(t *testing.T, dir string)
	why  error
	// repair undoes fail. It is nil if only an unmount does.
	repair func(t *testing.T, dir string)
}

// disks are the ways in which a data directory fails.
func disks() []disk {
	return []disk{
		{"tmpfs without space", "tf", tmpfsOf("mode=755,size=48m"), fillWithBytes, unix.ENOSPC, emptyDisk},
		{"ext4 without space", "ef", smallExt4, fillWithBytes, unix.ENOSPC, emptyDisk},
		{"tmpfs without inodes", "ti", tmpfsOf("mode=755,size=48m,nr_inodes=2k"), fillWithFiles, unix.ENOSPC, emptyDisk},
		{"ext4 without inodes", "ei", smallExt4, fillWithFiles, unix.ENOSPC, emptyDisk},
		{"read-only ext4", "er", smallExt4, breakExt4, unix.EROFS, nil},
	}
}

func tmpfsOf(options string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
			t.Fatalf("mount a tmpfs: %v", err)
		}
	}
}

// smallExt4 mounts an ext4 on which an error makes it read-only, as most distributions
// configure the root file system.
func smallExt4(t *testing.T, dir string) {
	t.Helper()
	mountExt4(t, dir, "64M", "errors=remount-ro")
}

// mountExt4 mounts an ext4 of a loop device. Its image is beside the directory.
func mountExt4(t *testing.T, dir, size, options string) {
	t.Helper()
	if !exists("/dev/loop-control") {
		t.Skip("this machine has no loop devices")
	}
	image := dir + ".img"
	t.Cleanup(func() { _ = os.Remove(image) })
	for _, command := range [][]string{
		{"truncate", "-s", size, image},
		{"mkfs.ext4", "-q", "-N", "2048", image},
		{"mount", "-o", "loop," + options, image, dir},
	} {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		if errors.Is(err, exec.ErrNotFound) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatalf("%q: %v: %s", command, err, out)
		}
	}
}

// filling is the directory of the files that fill the disk.
func filling(dir string) string { return filepath.Join(dir, "filling") }

// fillWithBytes uses every block, including those reserved for root.
func fillWithBytes(t *testing.T, dir string) {
	t.Helper()
	f, err := os.OpenFile(filling(dir), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		n, err := f.Write(make([]byte, size))
		switch {
		case errors.Is(err, unix.ENOSPC) && n == 0:
			size /= 2
		case err != nil && !errors.Is(err, unix.ENOSPC):
			t.Fatal(err)
		}
	}
}

func fillWithFiles(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(filling(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := os.CreateTemp(filling(dir), "")
		if errors.Is(err, unix.ENOSPC) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}

func emptyDisk(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(filling(dir)); err != nil {
		t.Error(err)
	}
}

// breakExt4 has the kernel find an error in the file system.
func breakExt4(t *testing.T, dir string) {
	t.Helper()
	source, err := exec.Command("findmnt", "-n", "-o", "SOURCE", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(strings.TrimSpace(string(source))), "trigger_fs_error")
	if err := os.WriteFile(trigger, []byte("test"), 0); err != nil {
		t.Skipf("this kernel cannot break a file system: %v", err)
	}
}

// failing returns a column whose data directory is on a disk of its own.
func (c *column) failing(t *testing.T, d disk) *column {
	t.Helper()
	programs, err := c.release.find(c.context(t))
	if err != nil {
		t.Fatal(err)
	}
	name := d.short + "-" + c.name // containerd refuses long paths of sockets
	opts := c.release.options(name, programs, c.daemon.Namespace()+"-"+name)
	dir := dataDir(opts.Dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d.mount(t, dir)
	t.Cleanup(func() { detach(t, dir) }) // for the case that the daemon does not start
	own := c.private(t, c.release, opts)
	own.blamed = append(own.blamed, "mount "+dir)
	t.Cleanup(func() {
		own.cleanUp(t)
		detach(t, dir) // before the column removes its directory
	})
	return own
}

// detach unmounts a disk and all mounts below it.
func detach(t *testing.T, dir string) {
	t.Helper()
	points, err := leaks.Scope{Dir: filepath.Dir(dir)}.MountPoints()
	if err != nil {
		t.Error(err)
	}
	for _, p := range slices.Backward(points) {
		if p != dir && !strings.HasPrefix(p, dir+"/") {
			continue
		}
		if err := unix.Unmount(p, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			t.Errorf("unmount %s: %v", p, err)
		}
	}
}

// expectUnusable checks that the disk fails in the way that the test wants.
func (d disk) expectUnusable(t *testing.T, dir string) {
	t.Helper()
	err := os.WriteFile(filepath.Join(dir, "probe"), []byte("x"), 0o600)
	_ = os.Remove(filepath.Join(dir, "probe"))
	if !errors.Is(err, d.why) {
		t.Fatalf("a write to the disk ends with %v, want %v", err, d.why)
	}
}

// If the data directory becomes full or read-only while a container runs, the container ends
// with its own exit code, and so does an exec. Both can be deleted at once, a third container
// can be killed, and nothing is left when the disk has space again.
func TestExitCodesAreRightOnADiskThatFails(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		for _, d := range disks() {
			t.Run(d.name, func(t *testing.T) {
				t.Parallel()
				c.failing(t, d).endOn(t, d)
			})
		}
	})
}

func (c *column) endOn(t *testing.T, d disk) {
	ctx, dir := c.context(t), dataDir(c.daemon.Dir())
	ends := c.running(t, exitsOnTerm(42))
	ended := c.wait(t, ends)
	probe, err := ends.Exec(ctx, "probe", process(t, ctx, ends, exitsOnTerm(7)...), cio.NullIO)
	if err != nil {
		t.Fatal(err)
	}
	probed := c.wait(t, probe)
	if err := probe.Start(ctx); err != nil {
		t.Fatal(err)
	}
	awaitTrap(t, probe.Pid())
	killed := c.running(t, []string{"testprog", "sleep", "1000"})
	dead := c.wait(t, killed)
	lonely := c.container(t, exitsOnTerm(43))
	events := c.listen(t, lonely.ID())
	last := c.newTask(t, lonely, cio.NullIO)
	alone := c.wait(t, last)
	if err := last.Start(ctx); err != nil {
		t.Fatal(err)
	}

	d.fail(t, dir)
	d.expectUnusable(t, dir)

	if c.name != "oci" { // runc writes a file for each exec
		if err := execTrue(ctx, killed, process(t, ctx, killed, "true"), "late"); err != nil {
			t.Errorf("exec: %v", err)
		}
	}
	terminate(t, int(probe.Pid()))
	expectExit(t, probed, 7)
	if st := deleteTask(t, ctx, probe); st.ExitCode() != 7 {
		t.Errorf("the deletion of the exec says %d, want 7", st.ExitCode())
	}
	c.termUntilGone(t, ends, ended, 42)
	began := time.Now()
	if st := deleteTask(t, ctx, ends); st.ExitCode() != 42 {
		t.Errorf("the deletion of the container says %d, want 42", st.ExitCode())
	}
	if took := time.Since(began); took > 2*time.Second*wait.Busyness() {
		t.Errorf("the deletion took %s", took)
	}
	if err := killed.Kill(ctx, syscall.SIGKILL); err != nil {
		t.Errorf("kill: %v", err)
	}
	expectExit(t, dead, 137)
	if d.repair != nil {
		d.fail(t, dir) // the deleted containers have freed space
	}
	terminate(t, int(last.Pid()))
	expectExit(t, alone, 43)
	if d.repair != nil { // otherwise the shim's knowledge is lost with it
		if err := syscall.Kill(c.shim(t, last.ID()), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		events.await(t, "delete 43")
	}
	if d.repair == nil {
		c.detachDisk(t, dir)
		return
	}
	d.repair(t, dir)
	c.run(t, []string{"--rm"}, c.id(), "testprog", "exit", "9").mustExit(t, 9) // this pod collects the remains
}

// detachDisk removes the containers and detaches the disk.
func (c *column) detachDisk(t *testing.T, dir string) {
	t.Helper()
	ctx := c.context(t)
	containers, err := c.client.Containers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, container := range containers {
		remove(t, ctx, container)
	}
	detach(t, dir)
}

// No file records how an app of fly ends, because its process is the one that stage 0 has
// started.
func TestFlyEndsWithItsCodeOnAFullDisk(t *testing.T) {
	eachFly(t, func(t *testing.T, n *node) {
		d, dir := disks()[0], dataDir(n.daemon.Dir())
		d.mount(t, dir)
		n.blamed = append(n.blamed, "mount "+dir)
		t.Cleanup(func() {
			n.cleanUp(t)
			detach(t, dir)
		})
		task := n.running(t, exitsOnTerm(42))
		ended := n.wait(t, task)
		awaitTrap(t, task.Pid())
		d.fail(t, dir)
		d.expectUnusable(t, dir)
		n.termUntilGone(t, task, ended, 42)
		if st := deleteTask(t, n.context(t), task); st.ExitCode() != 42 {
			t.Errorf("the deletion says %d, want 42", st.ExitCode())
		}
		d.repair(t, dir)
	})
}
