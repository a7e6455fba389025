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

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/erofs"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// rootTree makes the directory of a root file system with testprog and busybox.
func rootTree(t *testing.T) string {
	t.Helper()
	tree := t.TempDir()
	for _, d := range []string{"bin", "proc", "sys", "dev", "run", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(tree, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for program, path := range map[string]string{"testprog": suite.testprog, "busybox": "/bin/busybox"} {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, "bin", program), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, applet := range []string{"sh", "cat", "cut", "grep", "sleep"} {
		if err := os.Symlink("busybox", filepath.Join(tree, "bin", applet)); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

// A root that is an image of ext4 is a disk of the machine, as containerd's blockfile snapshotter has
// it. The host does not mount it.
func TestAMachineHasAnImageAsTheRootOfAContainer(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		tree, img := rootTree(t), filepath.Join(t.TempDir(), "image")
		if out, err := exec.Command("mke2fs", "-q", "-t", "ext4", "-d", tree, img, "64M").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		ctx := c.context(t)
		create := func(args ...string) (containerd.Container, containerd.Task, *streams, error) {
			container, err := c.client.NewContainer(ctx, c.id(), containerd.WithRuntime(c.runtime, nil),
				containerd.WithNewSpec(oci.WithProcessArgs(args...)))
			if err != nil {
				t.Fatal(err)
			}
			out := &streams{}
			task, err := container.NewTask(ctx, out.creator(c, nil), containerd.WithRootFS([]mount.Mount{
				{Type: "ext4", Source: img, Options: []string{"loop", "rw"}},
			}))
			return container, task, out, err
		}
		remove := func(container containerd.Container, task containerd.Task) {
			t.Helper()
			if task != nil {
				deleteTask(t, ctx, task)
			}
			if err := container.Delete(ctx); err != nil {
				t.Error(err)
			}
		}
		container, task, out, err := create("/bin/sh", "-c", "/bin/testprog inspect; busybox yes written | busybox head -c 24000000 >/etc/written")
		if err != nil {
			t.Fatal(err)
		}
		// Two machines must not write one file system.
		other, second, _, err := create("/bin/testprog", "inspect")
		if err == nil || !strings.Contains(err.Error(), "another machine uses it") {
			t.Errorf("a second machine has the image: %v", err)
		}
		remove(other, second)
		exited := c.wait(t, task)
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 0)
		awaitOutput(t, task)
		if m := parseReport(t, out.stdout.String()).Mounts["/"]; m.Type != "ext4" {
			t.Errorf("the root is %+v", m)
		}
		remove(container, task)
		if out, err := exec.Command("e2fsck", "-n", "-f", img).CombinedOutput(); err != nil {
			t.Errorf("the file system of a deleted container: %v: %s", err, out)
		}
		if out, err := exec.Command("debugfs", "-R", "cat /etc/written", img).Output(); err != nil || string(out) != strings.Repeat("written\n", 3000000) {
			t.Errorf("the container has written %d bytes, %v", len(out), err)
		}
		// The next container can have it.
		container, task, _, err = create("/bin/testprog", "exit", "42")
		if err != nil {
			t.Fatal(err)
		}
		exited = c.wait(t, task)
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 42)
		remove(container, task)
	})
}

// A host that shuts down sends SIGTERM to all processes, and SIGKILL ten or more seconds later. The guest's kernel would
// write back what it has cached after half a minute.
func TestSIGTERMOfAShutdownHasAVMWriteItsDisks(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		img, ctx, pod := filepath.Join(t.TempDir(), "image"), c.context(t), "group-"+c.id()
		if out, err := exec.Command("mke2fs", "-q", "-t", "ext4", "-d", rootTree(t), img, "64M").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, file, number := loopDevice(t, "before")
		output := filepath.Join(t.TempDir(), "log")
		container, err := c.client.NewContainer(ctx, c.id(), containerd.WithRuntime(c.runtime, nil), containerd.WithNewSpec(
			group(pod), withDevice(number, "/dev/volume", "rw"),
			// The last close would write the device back.
			oci.WithProcessArgs("/bin/sh", "-c", "echo cached >/etc/written; exec 3>/dev/volume; echo cached >&3; echo ready; exec /bin/sleep 1000")))
		if err != nil {
			t.Fatal(err)
		}
		task, err := container.NewTask(ctx, cio.LogFile(output), containerd.WithRootFS([]mount.Mount{{Type: "ext4", Source: img, Options: []string{"loop", "rw"}}}))
		if err != nil {
			t.Fatal(err)
		}
		exited := c.wait(t, task)
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "the container has written", func() bool { return read(t, output) == "ready\n" })
		dir, record := c.pod(t, pod)
		l := &life{supervisor: record.Supervisor.PID}
		all := append(processesWith(t, "virtiofsd", dir), l.child(t, "qemu-system"), int(task.Pid()), l.supervisor)
		for _, pid := range all {
			sendSignal(t, pid, syscall.SIGTERM)
		}
		expectExit(t, exited, 137)
		wait.Observe(t, "the VM has ended", func() (bool, string) {
			living := slices.DeleteFunc(slices.Clone(all), func(pid int) bool { return !alive(pid) })
			return len(living) == 0, fmt.Sprint(living)
		})
		deleteTask(t, ctx, task)
		if err := container.Delete(ctx); err != nil {
			t.Error(err)
		}
		if out, err := exec.Command("e2fsck", "-n", "-f", img).CombinedOutput(); err != nil {
			t.Errorf("the file system of the root: %v: %s", err, out)
		}
		if out, err := exec.Command("debugfs", "-R", "cat /etc/written", img).Output(); err != nil || string(out) != "cached\n" {
			t.Errorf("the root has %q, %v", out, err)
		}
		if text := read(t, file); !strings.HasPrefix(text, "cached\n") {
			t.Errorf("the volume has %.20q", text)
		}
	})
}

// The host's file system is full, so that the machine cannot write the disk back.
func TestADiskThatCannotBeWrittenBackIsTakenBack(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		small := t.TempDir()
		if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=16m"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(small, syscall.MNT_DETACH) })
		tree, ctx, pod := rootTree(t), c.context(t), group("group-"+c.id())
		create := func(dir string, args ...string) containerd.Task {
			t.Helper()
			img := filepath.Join(dir, "image")
			if out, err := exec.Command("mke2fs", "-q", "-t", "ext4", "-d", tree, img, "128M").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			container, err := c.client.NewContainer(ctx, c.id(), containerd.WithRuntime(c.runtime, nil),
				containerd.WithNewSpec(oci.WithProcessArgs(args...), pod))
			if err != nil {
				t.Fatal(err)
			}
			task, err := container.NewTask(ctx, cio.NullIO, containerd.WithRootFS([]mount.Mount{{Type: "ext4", Source: img, Options: []string{"loop", "rw"}}}))
			if err != nil {
				t.Fatal(err)
			}
			return task
		}
		end := func(task containerd.Task, code uint32) {
			t.Helper()
			exited := c.wait(t, task)
			if err := task.Start(ctx); err != nil {
				t.Fatal(err)
			}
			expectExit(t, exited, code)
			c.drop(t, task)
		}
		keeper := c.running(t, []string{"testprog", "sleep", "1000"}, pod)
		end(create(small, "/bin/sh", "-c", "busybox dd if=/dev/zero of=/etc/written bs=1M count=48; exit 5"), 5)
		var room syscall.Statfs_t
		if err := syscall.Statfs(small, &room); err != nil || room.Bavail > 0 {
			t.Errorf("the host has room for %d blocks, so that the machine could write: %v", room.Bavail, err)
		}
		end(create(t.TempDir(), "/bin/sh", "-c", "busybox dd if=/dev/zero of=/etc/written bs=1M count=48 && exit 6"), 6)
		c.killAndDrop(t, keeper)
		c.expectNothingLeft(t)
	})
}

// A root that is an image of erofs is a disk that many containers may have, in one machine and in several. Nothing
// can write it; a client that wants a place to write to mounts a tmpfs. Where there is no machine, the host mounts it.
//
// requirements.md#B18
func TestImagesOfErofsAreReadOnlyRoots(t *testing.T) {
	eachOf(t, []string{"native", "kvm"}, func(t *testing.T, c *column) {
		if c.name != "kvm" && !strings.Contains(read(t, "/proc/filesystems"), "\terofs\n") {
			t.Skip("the kernel has no erofs")
		}
		tree, img := rootTree(t), filepath.Join(t.TempDir(), "image")
		if err := os.WriteFile(filepath.Join(tree, "etc/text"), []byte("of the image\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := erofs.Write(img, tree); err != nil {
			t.Fatal(err)
		}
		before := read(t, img)
		ctx := c.context(t)
		create := func(out cio.Creator, pod, script string) containerd.Task {
			t.Helper()
			container, err := c.client.NewContainer(ctx, c.id(), containerd.WithRuntime(c.runtime, nil), containerd.WithNewSpec(
				oci.WithProcessArgs("/bin/sh", "-c", script), group(pod),
				oci.WithMounts([]specs.Mount{{Type: "tmpfs", Source: "tmpfs", Destination: "/tmp"}})))
			if err != nil {
				t.Fatal(err)
			}
			task, err := container.NewTask(ctx, out, containerd.WithRootFS([]mount.Mount{{Type: "erofs", Source: img, Options: []string{"ro", "loop"}}}))
			if err != nil {
				t.Fatal(err)
			}
			return task
		}
		pod := "group-" + c.id()
		first := create(cio.NullIO, pod, "exec sleep 1000")
		if err := first.Start(ctx); err != nil {
			t.Fatal(err)
		}
		for _, pod := range []string{pod, "group-" + c.id()} { // the second has another machine
			out := &streams{}
			task := create(out.creator(c, nil), pod,
				"cat /etc/text; echo new >/tmp/file && cat /tmp/file; (echo new >/etc/text) 2>&1 | grep -o 'Read-only file system'; grep ' / ' /proc/mounts | cut -d ' ' -f 3")
			exited := c.wait(t, task)
			if err := task.Start(ctx); err != nil {
				t.Fatal(err)
			}
			expectExit(t, exited, 0)
			awaitOutput(t, task)
			if got := out.stdout.String(); got != "of the image\nnew\nRead-only file system\nerofs\n" {
				t.Errorf("the container says %q, %q", got, out.stderr.String())
			}
			c.drop(t, task)
		}
		c.killAndDrop(t, first)
		if read(t, img) != before {
			t.Error("the image was changed")
		}
	})
}

// The mounts of containerd's snapshotter erofs for an image of several layers are disks of a machine, and the machine makes
// the overlay of them. The host mounts nothing. Where there is no machine, containerd's mount manager makes the overlay.
//
// requirements.md#B18
func TestARootIsAnOverlayOfImages(t *testing.T) {
	eachOf(t, []string{"native", "kvm"}, func(t *testing.T, c *column) {
		if c.name != "kvm" && !strings.Contains(read(t, "/proc/filesystems"), "\terofs\n") {
			t.Skip("the kernel has no erofs")
		}
		if c.release.old {
			t.Skip("this containerd has no mount manager, which makes the image")
		}
		dir := filepath.Join(c.daemon.Dir(), "root", c.id()) // the mount manager makes an image only below containerd's directory
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		writable := filepath.Join(dir, "writable")
		mounts := []mount.Mount{{Type: "mkfs/ext4", Source: writable, Options: []string{"X-containerd.mkfs.fs=ext4", "X-containerd.mkfs.size=16777216", "rw", "loop"}}}
		const layers = 9 // and a disk to write to: more than a device of a machine has
		for n := range layers {
			tree := t.TempDir()
			if n == layers-1 { // the lowest
				tree = rootTree(t)
			} else if err := os.Mkdir(filepath.Join(tree, "etc"), 0o755); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"same", fmt.Sprint("of", n)} {
				if err := os.WriteFile(filepath.Join(tree, "etc", name), []byte(fmt.Sprintln("layer", n)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			img := filepath.Join(dir, fmt.Sprint("layer", n))
			if err := erofs.Write(img, tree); err != nil {
				t.Fatal(err)
			}
			mounts = append(mounts, mount.Mount{Type: "erofs", Source: img, Options: []string{"ro", "loop"}})
		}
		mounts = append(mounts, mount.Mount{Type: "format/mkdir/overlay", Source: "overlay", Options: []string{
			"X-containerd.mkdir.path={{ mount 0 }}/upper:0755", "X-containerd.mkdir.path={{ mount 0 }}/work:0755",
			"workdir={{ mount 0 }}/work", "upperdir={{ mount 0 }}/upper", fmt.Sprintf("lowerdir={{ overlay 1 %d }}", layers),
		}})
		// loops are the images that loop devices of the host have.
		loops := func() string {
			out, err := exec.Command("losetup", "--noheadings", "--output", "BACK-FILE").Output()
			if err != nil {
				t.Fatal(err)
			}
			return strings.Join(slices.DeleteFunc(strings.Fields(string(out)), func(f string) bool { return !strings.HasPrefix(f, dir) }), " ")
		}
		ctx := c.context(t)
		run := func(script, want string) {
			t.Helper()
			container, err := c.client.NewContainer(ctx, c.id(), containerd.WithRuntime(c.runtime, nil),
				containerd.WithNewSpec(oci.WithProcessArgs("/bin/sh", "-c", script)))
			if err != nil {
				t.Fatal(err)
			}
			out := &streams{}
			task, err := container.NewTask(ctx, out.creator(c, nil), containerd.WithRootFS(mounts))
			if err != nil {
				t.Fatal(err)
			}
			if has := loops(); (has == "") != (c.name == "kvm") {
				t.Errorf("the host has the loop devices of %q", has)
			}
			exited := c.wait(t, task)
			if err := task.Start(ctx); err != nil {
				t.Fatal(err)
			}
			expectExit(t, exited, 0)
			awaitOutput(t, task)
			if got := out.stdout.String(); got != want {
				t.Errorf("the container says %q, %q; want %q", got, out.stderr.String(), want)
			}
			deleteTask(t, ctx, task)
			if err := container.Delete(ctx); err != nil {
				t.Error(err)
			}
			wait.Until(t, "the host has no loop device of the images", func() bool { return loops() == "" })
		}
		run("cd /etc; cat same of0 of8; echo new >new; echo other >of0; busybox rm of8; grep ' / ' /proc/mounts | cut -d ' ' -f 3",
			"layer 0\nlayer 0\nlayer 8\noverlay\n")
		run("cd /etc; cat new of0; cat of8 2>/dev/null || echo none", "new\nother\nnone\n")
		if out, err := exec.Command("e2fsck", "-n", "-f", writable).CombinedOutput(); err != nil {
			t.Errorf("the file system of a deleted container: %v: %s", err, out)
		}
	})
}
