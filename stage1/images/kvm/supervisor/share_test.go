package supervisor

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// mountTmpfs mounts a tmpfs on a new directory. The end of the test unmounts it.
func mountTmpfs(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// addVolume adds the app "a" with a volume.
func (w *world) addVolume(source string, options ...string) {
	w.t.Helper()
	r := with(w.t, func(s *specs.Spec) {
		s.Mounts = []specs.Mount{{Destination: "/volume", Type: "bind", Source: source, Options: options}}
	})
	if err := w.call(w.t.Context(), &abi.Request{Entrypoint: abi.AppAdd, App: "a", Spec: r.Spec}, null(w.t)); err != nil {
		w.t.Fatal(err)
	}
}

// shared mounts a tmpfs, of which bind mounts are peers, on a new directory. systemd makes all mounts of a
// host so.
func shared(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "volume")
	mountTmpfs(t, dir)
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (w *world) removeApp() {
	w.t.Helper()
	w.tell("exit a code=0")
	w.next()
	if err := w.call(w.t.Context(), &abi.Request{Entrypoint: abi.AppRm, App: "a"}, [3]*os.File{}); err != nil {
		w.t.Fatal(err)
	}
}

// mountPoints returns what is mounted in the namespace of the share.
func (w *world) mountPoints() (all []string) {
	w.t.Helper()
	err := w.s.Share.within(func(self *os.File) error {
		fd, err := unix.Openat(int(self.Fd()), "mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(fd), "mountinfo")
		defer file.Close()
		text, err := io.ReadAll(file)
		for line := range strings.Lines(string(text)) {
			all = append(all, strings.Fields(line)[4])
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// The kernel lets a process remove a directory on which something is mounted in other namespaces only, so runc's
// containers do not prevent that either.
func TestTheHostMayRemoveWhatItHasUnmountedBelowAVolume(t *testing.T) {
	w := newWorld(t)
	volume := t.TempDir()
	below := filepath.Join(volume, "below")
	mountTmpfs(t, below)
	w.addVolume(volume, "rbind")
	if err := unix.Unmount(below, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(below); err != nil {
		t.Errorf("while an app has the volume: %v", err)
	}
}

// A bind mount of a shared mount is its peer. When the peer and the mounts below it are unmounted together, the
// kernel unmounts those of the host, too.
func TestTheRemovalOfAnAppUnmountsNothingBelowItsVolumes(t *testing.T) {
	w := newWorld(t)
	volume := shared(t)
	below := filepath.Join(volume, "below")
	mountTmpfs(t, below)
	if err := os.WriteFile(filepath.Join(below, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.addVolume(volume, "rbind")
	w.removeApp()
	if _, err := os.Stat(filepath.Join(below, "file")); err != nil {
		t.Errorf("the host has lost its mount: %v", err)
	}
}

// The machine's kernel may be another one than ours by now. virtiofsd does for it what its mounts allow.
func TestAReadOnlyVolumeIsReadOnlyForTheWholeMachine(t *testing.T) {
	for _, test := range []struct {
		options  []string
		readOnly bool
	}{
		{[]string{"rbind", "ro"}, true}, {[]string{"bind", "rro"}, true}, {[]string{"rbind", "rw", "ro"}, true},
		{[]string{"rbind"}, false}, {[]string{"rbind", "ro", "rw"}, false},
	} {
		w := newWorld(t)
		volume := t.TempDir()
		below := ""
		if slices.Contains(test.options, "rbind") {
			below = "below/"
			mountTmpfs(t, filepath.Join(volume, below))
		}
		w.addVolume(volume, test.options...)
		for _, name := range []string{"file", below + "file"} {
			var err error
			w.inShare(func() { err = os.WriteFile("/volumes/a-1/1/"+name, nil, 0o600) })
			if is := errors.Is(err, unix.EROFS); is != test.readOnly || !is && err != nil {
				t.Errorf("%q: the machine writes %s: %v", test.options, name, err)
			}
		}
		if err := os.WriteFile(filepath.Join(volume, "file"), nil, 0o600); err != nil {
			t.Errorf("%q: the host writes: %v", test.options, err)
		}
		w.removeApp()
	}
}

func TestTheMountsOfAShareAreInANamespaceOfTheirOwn(t *testing.T) {
	w := newWorld(t)
	volume := t.TempDir()
	mountTmpfs(t, filepath.Join(volume, "below"))
	share, err := filepath.Abs(Shared)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		option string
		want   []string
	}{
		{"bind", []string{"/", "/roots/a-1", "/volumes/a-1/1"}},
		{"rbind", []string{"/", "/roots/a-2", "/volumes/a-2/1", "/volumes/a-2/1/below"}},
	} {
		w.addVolume(volume, test.option)
		if got := w.mountPoints(); !slices.Equal(got, test.want) {
			t.Errorf("with %s the share has the mounts %q, want %q", test.option, got, test.want)
		}
		if mounts := mountsOf(t, os.Getpid()); strings.Contains(mounts, share) {
			t.Errorf("with %s the host has mounts of the share:\n%s", test.option, mounts)
		}
		w.removeApp()
		if got := w.mountPoints(); len(got) != 1 {
			t.Errorf("without an app the share has the mounts %q", got)
		}
		expectEmptyShare(t)
	}
}

// serve returns a directory of the share as virtiofsd has it: as a slave in another namespace.
func (w *world) serve(dir string) *os.File {
	w.t.Helper()
	tree, err := w.s.Share.Tree(dir)
	if err != nil {
		w.t.Fatal(err)
	}
	defer tree.Close()
	at := w.t.TempDir()
	var root *os.File
	err = proc.OnThread(func() error {
		err := errors.Join(unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH),
			unix.Mount("", at, "", unix.MS_SLAVE, ""))
		if err != nil {
			return err
		}
		namespace, err := os.Open("/proc/thread-self/ns/mnt")
		if err != nil {
			return err
		}
		w.t.Cleanup(func() { namespace.Close() })
		root, err = os.Open(at)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { root.Close() })
	return root
}

func TestAShareHasWhatTheHostMountsBelowAVolumeLater(t *testing.T) {
	w := newWorld(t)
	root := w.serve(Volumes)
	volume := shared(t)
	w.addVolume(volume, "rbind")
	server := func(path string) error {
		return unix.Faccessat(int(root.Fd()), filepath.Join("a-1/1", path), unix.F_OK, 0)
	}
	below := filepath.Join(volume, "below")
	mountTmpfs(t, below)
	if err := os.WriteFile(filepath.Join(below, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.inShare(func() {
		if _, err := os.Stat("/volumes/a-1/1/below/file"); err != nil {
			t.Error(err)
		}
	})
	if err := server("below/file"); err != nil {
		t.Errorf("a server of the share: %v", err)
	}
	if err := unix.Unmount(below, 0); err != nil {
		t.Fatal(err)
	}
	if err := server("below/file"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a server of the share has what the host has unmounted: %v", err)
	}
	w.removeApp()
	if err := unix.Faccessat(int(root.Fd()), "a-1", unix.F_OK, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a server of the share has an app that was removed: %v", err)
	}
}
