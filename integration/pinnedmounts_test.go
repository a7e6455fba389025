package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// snapd mounts the files of mount namespaces below /run/snapd/ns, and `unshare --mount=FILE` on any file. A
// container gets the tree with all other mounts and with the file that is covered, as with runc.
func TestARecursiveBindOfATreeWithAPinnedMountNamespace(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		volume := t.TempDir()
		must(t, unix.Mount("volume", volume, "tmpfs", 0, ""))
		t.Cleanup(func() { must(t, unix.Unmount(volume, unix.MNT_DETACH)) })
		must(t, unix.Mount("", volume, "", unix.MS_PRIVATE, ""))
		must(t, os.Mkdir(filepath.Join(volume, "sub"), 0o755))
		must(t, unix.Mount("sub", filepath.Join(volume, "sub"), "tmpfs", 0, ""))
		must(t, os.WriteFile(filepath.Join(volume, "sub/file"), nil, 0o644))
		must(t, os.WriteFile(filepath.Join(volume, "pin"), []byte("covered\n"), 0o644))
		pinMountNamespace(t, filepath.Join(volume, "pin"))
		for range 4 { // since Linux 6.18, the kernel refuses such a tree or not according to the processor
			for _, options := range [][]string{{"rbind"}, {"rbind", "rslave", "ro"}, {"rbind", "rro"}} {
				got := c.output(t, []string{"sh", "-c", "cat /volume/pin; ls /volume /volume/sub"}, oci.WithMounts([]specs.Mount{
					{Type: "bind", Source: volume, Destination: "/volume", Options: options},
				}))
				if want := "covered\n/volume:\npin\nsub\n\n/volume/sub:\nfile\n"; got != want {
					t.Errorf("%s: %q, want %q", options, got, want)
				}
			}
		}
	})
}

// systemd has autofs mounts below /proc and on some hosts below /home. Mounts that are unbindable are in a container
// if the kernel makes them bindable in a new mount namespace, in which runc makes its bind mounts.
func TestARecursiveBindOfATreeWithUnbindableAndAutofsMounts(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		volume := t.TempDir()
		must(t, unix.Mount("volume", volume, "tmpfs", 0, ""))
		t.Cleanup(func() { must(t, unix.Unmount(volume, unix.MNT_DETACH)) })
		must(t, unix.Mount("", volume, "", unix.MS_PRIVATE, ""))
		for _, dir := range []string{"unbindable", "auto", "plain"} {
			must(t, os.Mkdir(filepath.Join(volume, dir), 0o755))
		}
		must(t, unix.Mount("plain", filepath.Join(volume, "plain"), "tmpfs", 0, ""))
		must(t, unix.Mount("unbindable", filepath.Join(volume, "unbindable"), "tmpfs", 0, ""))
		must(t, unix.Mount("", filepath.Join(volume, "unbindable"), "", unix.MS_UNBINDABLE, ""))
		daemon, kernel, err := os.Pipe()
		must(t, err)
		t.Cleanup(func() { daemon.Close(); kernel.Close() })
		direct := fmt.Sprintf("fd=%d,pgrp=%d,minproto=5,maxproto=5,direct", kernel.Fd(), unix.Getpgrp())
		must(t, unix.Mount("auto", filepath.Join(volume, "auto"), "autofs", 0, direct))

		// A look into the autofs mount would wait for its daemon.
		list := func(volume string) string {
			return `sed -n 's,^.* ` + volume + `\(/[a-z]*\) .* - \([a-z]*\) .*,\1 \2,p' /proc/self/mountinfo | sort`
		}
		at := t.TempDir()
		reference, err := exec.Command("unshare", "--mount", "--propagation", "slave", "sh", "-c", "mount --rbind "+volume+" "+at+" && "+list(at)).Output()
		must(t, err)
		got := c.output(t, []string{"sh", "-c", list("/volume")}, oci.WithMounts([]specs.Mount{
			{Type: "bind", Source: volume, Destination: "/volume", Options: []string{"rbind"}},
		}))
		if got != string(reference) || !strings.Contains(got, "/auto autofs\n") || !strings.Contains(got, "/plain tmpfs\n") {
			t.Errorf("%q, want as in a new mount namespace %q", got, reference)
		}
	})
}

// pinMountNamespace mounts the file of a new mount namespace. The kernel accepts only one with a higher number than
// the caller's, and numbers them per processor since Linux 6.18.
func pinMountNamespace(t *testing.T, file string) {
	t.Helper()
	for range 100 {
		owner := exec.Command("sleep", "1000")
		owner.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		must(t, owner.Start())
		err := unix.Mount(fmt.Sprintf("/proc/%d/ns/mnt", owner.Process.Pid), file, "", unix.MS_BIND, "")
		must(t, owner.Process.Kill())
		_ = owner.Wait() // always an error: the process was killed
		if !errors.Is(err, unix.EINVAL) {
			must(t, err)
			return
		}
	}
	t.Fatal("the kernel accepts no mount namespace")
}

// output runs a container to its end and returns what it has written.
func (c *column) output(t *testing.T, args []string, opts ...oci.SpecOpts) string {
	t.Helper()
	ctx := c.context(t)
	var out streams
	task := c.newTask(t, c.container(t, args, opts...), out.creator(c, nil))
	exited := c.wait(t, task)
	must(t, task.Start(ctx))
	<-exited
	awaitOutput(t, task)
	deleteTask(t, ctx, task)
	return out.stdout.String() + out.stderr.String()
}
