package mount_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/shim/mount"
	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// layered are the mounts of containerd's snapshotter erofs for an image of two layers, with a disk for what the
// container writes. The mount manager has made that disk.
func layered(writable, upper, lower string) []*types.Mount {
	return []*types.Mount{
		{Type: "ext4", Source: writable, Options: []string{"rw", "loop"}},
		{Type: "ext4", Source: upper, Options: []string{"ro", "loop", "noload"}},
		{Type: "ext4", Source: lower, Options: []string{"ro", "loop", "noload"}},
		{Type: "format/mkdir/overlay", Source: "overlay", Options: []string{
			"X-containerd.mkdir.path={{ mount 0 }}/upper:0755", "X-containerd.mkdir.path={{ mount 0 }}/work:0755",
			"workdir={{ mount 0 }}/work", "upperdir={{ mount 0 }}/upper", "lowerdir={{ overlay 1 2 }}",
		}},
	}
}

// requirements.md#B18
func TestMountsMayReferToEarlierOnes(t *testing.T) {
	steps, parts, err := mount.Steps(layered("/w", "/u", "/l"))
	if err != nil || parts != 3 || len(steps) != 4 {
		t.Fatalf("%d steps, %d parts, %v", len(steps), parts, err)
	}
	want := abi.Mount{
		Type: "overlay", Source: "overlay", Options: []string{"workdir=0/work", "upperdir=0/upper", "lowerdir=1:2"},
		Dirs: []abi.Dir{{Path: "0/upper", Mode: 0o755}, {Path: "0/work", Mode: 0o755}},
	}
	if !reflect.DeepEqual(steps[3], want) {
		t.Errorf("the last step is %+v", steps[3])
	}
	for text, filled := range map[string]string{
		"{{ mount 1 }}":               "1",
		"{{mount 1}}/a:{{ mount 0 }}": "1/a:0",
		"{{ source 0 }}":              "/w",
		"{{ target 2 }}x":             "x",
		"{{ overlay 2 0 }}":           "2:1:0",
		"{{ overlay 1 1 }}":           "1",
		"}} no words":                 "}} no words",
		"{{ mount 3 }}":               "",
		"{{ mount -1 }}":              "",
		"{{ mount }}":                 "",
		"{{ mount 0":                  "",
		"{{ overlay 0 }}":             "",
		"{{ overlay 0 9 }}":           "",
		"{{ exec 0 }}":                "",
		"{{}}":                        "",
	} {
		steps, _, err := mount.Steps(append(layered("/w", "/u", "/l")[:3], &types.Mount{Type: "format/bind", Source: text}))
		if (err == nil) != (filled != "") || err == nil && steps[3].Source != filled || err != nil && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %+v, %v", text, steps, err)
		}
	}
}

func TestOtherWorkOfAMountManagerIsRefused(t *testing.T) {
	for text, m := range map[string]*types.Mount{
		`the work of "mkfs" first`:                {Type: "mkfs/ext4", Source: "/w", Options: []string{"X-containerd.mkfs.size=1"}},
		`the work of "" first`:                    {Type: "/ext4"},
		`only directories of the mounts before`:   {Type: "mkdir/bind", Options: []string{"X-containerd.mkdir.path=/etc/x"}},
		`is no mode`:                              {Type: "mkdir/bind", Options: []string{"X-containerd.mkdir.path=0/x:4755"}},
		`"0:0" is no mode`:                        {Type: "mkdir/bind", Options: []string{"X-containerd.mkdir.path=0/x:0:0"}},
		`"{{ mount 1 }}" names nothing of the 1 `: {Type: "format/bind", Source: "{{ mount 1 }}"},
	} {
		_, _, err := mount.Steps([]*types.Mount{{Type: "tmpfs"}, m})
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// mounted returns the mount at a path.
func mounted(t *testing.T, path string) *mountinfo.Info {
	t.Helper()
	infos, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(path))
	if err != nil || len(infos) != 1 {
		t.Fatalf("mounted at %s are %v, %v", path, infos, err)
	}
	return infos[0]
}

// sealed makes an image with a file.
func sealed(t *testing.T, name, content string) string {
	t.Helper()
	path := image(t)
	change(t, path, func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644) })
	return path
}

// change has f change what is in an image.
func change(t *testing.T, path string, f func(dir string) error) {
	t.Helper()
	dir := target(t)
	if err := mount.Mount(t.Context(), &types.Mount{Type: "ext4", Source: path, Options: []string{"loop"}}, dir); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f(dir), unix.Unmount(dir, 0)); err != nil {
		t.Fatal(err)
	}
	awaitFree(t, path)
}

// awaitFree waits until no loop device has a file. A process that makes a mount namespace has the mounts of
// this one for a moment.
func awaitFree(t *testing.T, path string) {
	t.Helper()
	wait.Until(t, "the loop device is free", func() bool { return loops(t, path) == 0 })
}

// loops returns how many loop devices have a file.
func loops(t *testing.T, path string) int {
	t.Helper()
	out, err := exec.Command("losetup", "-j", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(out), "\n")
}

// requirements.md#M1
// requirements.md#B18
func TestARootIsMadeOfImages(t *testing.T) {
	needRoot(t)
	writable, upper, lower := image(t), sealed(t, "file", "upper"), sealed(t, "file", "lower")
	for range 2 { // what was written stays
		root := target(t)
		if err := mount.All(t.Context(), layered(writable, upper, lower), root); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(root, "file")); err != nil || string(b) != "upper" {
			t.Errorf("the file has %q, %v", b, err)
		}
		b, err := os.ReadFile(filepath.Join(root, "written"))
		if err != nil && !os.IsNotExist(err) || err == nil && string(b) != "x" {
			t.Errorf("%q, %v", b, err)
		}
		if err := os.WriteFile(filepath.Join(root, "written"), []byte("x"), 0o644); err != nil {
			t.Error(err)
		}
		if st, err := os.Stat(root); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("the root has %v, %v", st, err)
		}
		infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(root))
		if err != nil || len(infos) != 1 || infos[0].FSType != "overlay" {
			t.Errorf("mounted are %+v, %v", infos, err)
		}
		if err := unix.Unmount(root, 0); err != nil {
			t.Error(err)
		}
		for _, path := range []string{writable, upper, lower} {
			awaitFree(t, path)
		}
	}
	// A single layer that is only read is a bind mount of its part.
	root := target(t)
	err := mount.All(t.Context(), []*types.Mount{layered("", upper, "")[1], {Type: "format/bind", Source: "{{ mount 0 }}", Options: []string{"ro", "rbind"}}}, root)
	if b, _ := os.ReadFile(filepath.Join(root, "file")); err != nil || string(b) != "upper" {
		t.Errorf("the file has %q, %v", b, err)
	}
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o644); err == nil {
		t.Error("it can be written")
	}
}

// containerd's snapshotter erofs may have one image of names for the contents of several layers.
//
// requirements.md#M1
func TestAnImageWithItsContentsInAnotherFile(t *testing.T) {
	needRoot(t)
	dir, img := t.TempDir(), filepath.Join(t.TempDir(), "image")
	contents := img + "-contents"
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte(strings.Repeat("text\n", 1000)), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("mkfs.erofs", "--chunksize", "4096", "--blobdev", contents, img, dir).CombinedOutput()
	if err != nil {
		t.Skipf("mkfs.erofs: %v: %s", err, out)
	}
	root := target(t)
	if err := mount.Mount(t.Context(), &types.Mount{Type: "erofs", Source: img, Options: []string{"ro", "loop", "device=" + contents}}, root); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(root, "file")); err != nil || len(b) != 5000 {
		t.Errorf("the file has %d bytes, %v", len(b), err)
	}
	if err := unix.Unmount(root, 0); err != nil {
		t.Error(err)
	}
	awaitFree(t, img)
	awaitFree(t, contents)
}

// requirements.md#M1
func TestTheLayersOfAMappedRootHaveTheNewOwner(t *testing.T) {
	needRoot(t)
	root, mounts := target(t), layered(image(t), sealed(t, "file", "upper"), sealed(t, "other", "lower"))
	mounts[3].Options = append(mounts[3].Options, "uidmap=0:100000:65536", "gidmap=0:200000:65536")
	if err := mount.All(t.Context(), mounts, root); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "other"} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(root, name), &st); err != nil || st.Uid != 100000 || st.Gid != 200000 {
			t.Errorf("%s belongs to %d:%d, %v", name, st.Uid, st.Gid, err)
		}
	}
}

// Each part is a layer, so that the options are longer than a page.
//
// requirements.md#M1
func TestManyLayersOfARootMayBeMapped(t *testing.T) {
	needRoot(t)
	const layers = 130
	var mounts []*types.Mount
	for range layers {
		mounts = append(mounts, &types.Mount{Type: "tmpfs", Source: "tmpfs"})
	}
	mounts = append(mounts, &types.Mount{Type: "format/overlay", Source: "overlay", Options: []string{
		"lowerdir={{ overlay 0 129 }}", "uidmap=0:100000:65536", "gidmap=0:200000:65536",
	}})
	root := target(t)
	if err := mount.All(t.Context(), mounts, root); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(root, &st); err != nil || st.Uid != 100000 || st.Gid != 200000 {
		t.Errorf("the root belongs to %d:%d, %v", st.Uid, st.Gid, err)
	}
}

// Two mounts of one file system that do not know of each other destroy it.
//
// requirements.md#M1
func TestAnImageIsNotWrittenByTwo(t *testing.T) {
	needRoot(t)
	img, first, second := image(t), target(t), target(t)
	at := func(root string, options ...string) error {
		return mount.All(t.Context(), []*types.Mount{{Type: "ext4", Source: img, Options: append(options, "loop")}}, root)
	}
	if err := at(first); err != nil {
		t.Fatal(err)
	}
	held, err := os.Create(filepath.Join(first, "held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := unix.Unmount(first, unix.MNT_DETACH); err != nil { // as for a root that a process still uses
		t.Fatal(err)
	}
	for _, options := range [][]string{nil, {"ro"}} {
		if err := at(second, options...); !errors.Is(err, unix.EWOULDBLOCK) || !strings.Contains(err.Error(), img+" is in use") {
			t.Errorf("mounted with %q beside the first: %v", options, err)
		}
	}
	// A machine has the lock of its disks.
	held.Close()
	awaitFree(t, img)
	machines, err := os.Open(img)
	if err != nil {
		t.Fatal(err)
	}
	defer machines.Close()
	if err := unix.Flock(int(machines.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	if err := at(second); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("mounted beside a machine: %v", err)
	}
	machines.Close()
	if err := at(second); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(second, 0); err != nil {
		t.Error(err)
	}
	awaitFree(t, img)
	for _, root := range []string{first, second} { // both only read it
		if err := at(root, "ro", "noload"); err != nil {
			t.Error(err)
		}
	}
}

// A machine writes the disk of a container as it likes, and the host mounts it later.
func TestADiskDoesNotDecideThatTheHostPanics(t *testing.T) {
	needRoot(t)
	img, root := image(t), target(t)
	if out, err := exec.Command("tune2fs", "-e", "panic", img).CombinedOutput(); err != nil {
		t.Fatalf("tune2fs: %v: %s", err, out)
	}
	for option, want := range map[string]string{"rw": "remount-ro", "errors=continue": "continue", "errors=panic": "panic"} { // as the client asks
		if err := mount.Mount(t.Context(), &types.Mount{Type: "ext4", Source: img, Options: []string{"loop", option}}, root); err != nil {
			t.Fatal(err)
		}
		device := strings.TrimPrefix(mounted(t, root).Source, "/dev/")
		if b, err := os.ReadFile("/proc/fs/ext4/" + device + "/options"); err != nil || !strings.Contains(string(b), "errors="+want+"\n") {
			t.Errorf("with the option %s: %s, %v", option, b, err)
		}
		if err := unix.Unmount(root, 0); err != nil {
			t.Error(err)
		}
		awaitFree(t, img)
	}
}

// A machine writes the disk of a container as it likes, and the host mounts it later.
func TestALinkInAnImageLeadsNowhere(t *testing.T) {
	needRoot(t)
	outside := t.TempDir()
	for name, link := range map[string]string{"upper": outside, "work": "/", "upper/../..": ""} {
		writable := image(t)
		mounts := layered(writable, sealed(t, "a", ""), sealed(t, "b", ""))
		if link == "" {
			mounts[3].Options[3] = "upperdir={{ mount 0 }}/" + name
		} else {
			change(t, writable, func(dir string) error { return os.Symlink(link, filepath.Join(dir, name)) })
		}
		root := target(t)
		want := "open "
		if link == "" {
			want = `no ".."`
		}
		if err := mount.All(t.Context(), mounts, root); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		if infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(root)); err != nil || len(infos) > 0 {
			t.Errorf("%s: mounted are %+v, %v", name, infos, err)
		}
		awaitFree(t, writable)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("outside are %v, %v", entries, err)
	}
}

// requirements.md#M2
func TestAFailureLeavesNoPartMounted(t *testing.T) {
	needRoot(t)
	writable, upper := image(t), sealed(t, "a", "")
	for name, spoil := range map[string]func([]*types.Mount){
		"a file that is no image": func(m []*types.Mount) { m[2].Source = os.Args[0] },
		"an option that is none":  func(m []*types.Mount) { m[3].Options = append(m[3].Options, "no-such-option") },
	} {
		mounts, root := layered(writable, upper, upper), target(t)
		spoil(mounts)
		if err := mount.All(t.Context(), mounts, root); err == nil {
			t.Errorf("%s: mounted", name)
		}
		if entries, err := os.ReadDir(root); err != nil || len(entries) > 0 {
			t.Errorf("%s: left are %v, %v", name, entries, err)
		}
		if infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(root)); err != nil || len(infos) > 0 {
			t.Errorf("%s: mounted are %+v, %v", name, infos, err)
		}
	}
	awaitFree(t, writable)
}
