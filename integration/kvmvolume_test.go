package integration

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// loopDevice makes a loop device of a file with some text, and returns both paths and the number.
func loopDevice(t *testing.T, text string) (device, file string, number uint64) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "volume")
	if err := os.WriteFile(file, append([]byte(text), make([]byte, 1<<20-len(text))...), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Skipf("this machine has no loop devices: %s", out)
	}
	device = strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "-d", device).CombinedOutput(); err != nil {
			t.Errorf("detach %s: %v: %s", device, err, out)
		}
	})
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		t.Fatal(err)
	}
	return device, file, st.Rdev
}

// withDevice gives a container a block device, as the kubelet does for volumeDevices.
func withDevice(number uint64, path, access string) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		major, minor := int64(unix.Major(number)), int64(unix.Minor(number))
		s.Linux.Devices = append(s.Linux.Devices, specs.LinuxDevice{
			Path: path, Type: "b", Major: major, Minor: minor, FileMode: new(os.FileMode(0o640)), UID: new(uint32(0)), GID: new(uint32(6)),
		})
		s.Linux.Resources.Devices = append(s.Linux.Resources.Devices, specs.LinuxDeviceCgroup{
			Allow: true, Type: "b", Major: &major, Minor: &minor, Access: access,
		})
		return nil
	}
}

// A block device of the host is a disk of the machine while a container has it. Other containers of the
// machine, which can make a node with its number, cannot open it.
func TestAMachineHasTheBlockDevicesOfItsContainersAndNoOthers(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		device, file, number := loopDevice(t, "first")
		other, otherFile, otherNumber := loopDevice(t, "other")
		pod := group("group-" + c.id())
		writer := c.running(t, []string{"testprog", "sleep", "1000"}, pod, withDevice(number, "/data/volume", "rwm"))
		reader := c.running(t, []string{"testprog", "sleep", "1000"}, pod, withDevice(otherNumber, "/dev/other", "r"))

		shell := func(id, script string) string {
			t.Helper()
			return strings.TrimSpace(c.exec(t, nil, id, "sh", "-c", script+"; true").must(t).stdout)
		}
		if got := shell(writer.ID(), `stat -c "%F %a %u:%g" /data/volume`); got != "block special file 640 0:6" {
			t.Errorf("the device of the container is a %q", got)
		}
		if got := shell(writer.ID(), `head -c 5 /data/volume; echo written | dd of=/data/volume bs=512 conv=notrunc,fsync 2>&1 >/dev/null | grep -i error`); got != "first" {
			t.Errorf("the container reads %q", got)
		}
		if text, err := os.ReadFile(file); err != nil || !bytes.HasPrefix(text, []byte("written\n")) {
			t.Errorf("the volume begins with %.10q, %v", text, err)
		}
		if got := shell(reader.ID(), `head -c 5 /dev/other; (echo bad > /dev/other) 2>&1 | grep -o "not permitted"`); got != "othernot permitted" {
			t.Errorf("the container that may only read gives %q", got)
		}
		// The attack: with the numbers of the machine, and with those of the host.
		attack := `cd /dev; set -- $(stat -L -c "0x%t" other); n=0
for major in $(($1)) ` + fmt.Sprint(unix.Major(number)) + `; do for minor in $(seq 0 16 112) ` + fmt.Sprint(unix.Minor(number)) + `; do
mknod x b $major $minor || echo no node; n=$((n+1))
head -c 7 x 2>/dev/null; (echo bad > x) 2>/dev/null && echo written
rm x; done; done; echo $n`
		if got := shell(reader.ID(), attack); !strings.Contains(got, "other\x00\x00") || strings.ReplaceAll(got, "other\x00\x00", "") != "18" {
			t.Errorf("the container finds %q in the disks of the machine", got)
		}
		if text, err := os.ReadFile(otherFile); err != nil || !bytes.HasPrefix(text, []byte("other\x00")) {
			t.Errorf("the volume that is only read begins with %.10q, %v", text, err)
		}

		free := func(device string) error {
			f, err := os.OpenFile(device, os.O_RDWR|unix.O_EXCL, 0)
			f.Close()
			return err
		}
		if err := free(other); err == nil {
			t.Errorf("%s has another user beside the machine", other)
		}
		c.killAndDrop(t, reader)
		if err := free(other); err != nil {
			t.Errorf("the device of the removed container: %v", err)
		}
		if err := free(device); err == nil {
			t.Errorf("%s has another user beside the machine", device)
		}
		c.killAndDrop(t, writer)
		wait.Until(t, "the device of the removed pod is free", func() bool { return free(device) == nil })
	})
}

// bound makes a mount of a file or directory of the host at a path.
func bound(source, path string) oci.SpecOpts {
	return oci.WithMounts([]specs.Mount{{Destination: path, Type: "bind", Source: source, Options: []string{"rbind"}}})
}

// The guest knows the files of a container's mounts from its Create on. nerdctl's hook writes /etc/hosts after that.
func TestAMachineReadsWhatWasWrittenToItsVolumesAMomentBefore(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		volume := t.TempDir()
		file := filepath.Join(volume, "file")
		write(t, file, "")
		pod := group("group-" + c.id())
		written := map[string][]specs.Hook{"createRuntime": {hook("echo by the hook >" + file)}}
		script := "cat /file >" + volume + "/reads; mv " + volume + "/reads " + volume + "/read; exec testprog sleep 1000"
		first := c.running(t, []string{"sh", "-c", script}, pod, hooks(volume, written), bound(file, "/file"))
		wait.Until(t, "the program has read the file", func() bool { _, err := os.Stat(volume + "/read"); return err == nil })
		if got := read(t, volume+"/read"); got != "by the hook\n" {
			t.Errorf("the program reads %q", got)
		}

		expect := func(id, path, want string) {
			t.Helper()
			if got := c.exec(t, nil, id, "cat", path).must(t).stdout; got != want {
				t.Errorf("%s has %q for an exec, not %q", path, got, want)
			}
		}
		for _, text := range []string{"", "one", "longer", "short", "other"} {
			write(t, file, text)
			expect(first.ID(), "/file", text)
			expect(first.ID(), file, text)
		}
		for _, name := range []string{"old", "renewed"} { // as the kubelet updates a ConfigMap
			if err := errors.Join(os.Mkdir(filepath.Join(volume, name), 0o755), os.Symlink(name, filepath.Join(volume, "new"))); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(volume, name, "key"), name)
			if err := os.Rename(filepath.Join(volume, "new"), filepath.Join(volume, "data")); err != nil {
				t.Fatal(err)
			}
			expect(first.ID(), volume+"/data/key", name)
		}
		// The containers of a pod see each other's changes.
		second := c.running(t, []string{"testprog", "sleep", "1000"}, pod, bound(volume, "/data"))
		for _, text := range []string{"", "short", "and longer"} {
			c.exec(t, nil, second.ID(), "sh", "-c", "printf '"+text+"' >/data/file").must(t)
			expect(first.ID(), file, text)
		}
	})
}

// A volume of Kubernetes with an fsGroup belongs to root and to a group that its users have beside their own.
func TestAMachineHasTheGroupsAndListsOfAccessOfItsVolumes(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		volume := t.TempDir()
		if err := errors.Join(os.Chown(volume, 0, 2000), unix.Chmod(volume, 0o2775)); err != nil {
			t.Fatal(err)
		}
		file := func(name string, mode os.FileMode, gid int, user, group, mask byte) {
			t.Helper()
			path := filepath.Join(volume, name)
			list := []byte{2, 0, 0, 0} // of user 1000 beside the owners
			for _, entry := range [][3]int{{1, 6, -1}, {2, int(user), 1000}, {4, int(group), -1}, {16, int(mask), -1}, {32, 0, -1}} {
				list = append(list, byte(entry[0]), 0, byte(entry[1]), 0)
				list = binary.LittleEndian.AppendUint32(list, uint32(entry[2]))
			}
			write(t, path, name)
			if err := errors.Join(os.Chmod(path, mode), os.Chown(path, 0, gid), unix.Setxattr(path, "system.posix_acl_access", list, 0)); err != nil {
				t.Fatal(err)
			}
		}
		file("granted", 0o600, 0, 4, 0, 4)
		file("denied", 0o600, 1000, 0, 0, 6)
		script := `cat granted; cat denied 2>&1; touch made && mkdir dir && mkfifo dir/fifo && stat -c '%u:%g %F' made dir dir/fifo; touch /etc/made 2>&1; rm made`
		task := c.running(t, []string{"testprog", "sleep", "1000"}, bound(volume, "/volume"))
		ctx := c.context(t)
		spec := process(t, ctx, task, "sh", "-c", script)
		spec.Cwd, spec.User = "/volume", specs.User{UID: 1000, GID: 1000, AdditionalGids: []uint32{2000}}
		spec.Capabilities = &specs.LinuxCapabilities{}
		var out streams
		e, err := task.Exec(ctx, "e", spec, out.creator(c, nil))
		if err != nil {
			t.Fatal(err)
		}
		exited := c.wait(t, e)
		if err := e.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 0)
		awaitOutput(t, e)
		deleteTask(t, ctx, e)
		want := "granted" + "cat: can't open 'denied': Permission denied\n" + "1000:2000 regular empty file\n1000:2000 directory\n1000:2000 fifo\n" + "touch: /etc/made: Permission denied\n"
		if got := out.stdout.String(); got != want {
			t.Errorf("it says %q, not %q", got, want)
		}
		c.killAndDrop(t, task)
	})
}
