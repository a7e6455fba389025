package mount_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	theirs "github.com/containerd/containerd/v2/core/mount"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/shim/mount"
	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// random are the parts of a description that differ between two mounts: a directory for a moment, and
// an option that the kernel adds when an upper directory is used for the first time.
var random = regexp.MustCompile(`ovl-idmapped\d+|,uuid=on`)

// made returns what is mounted at a directory and below it: the path below, the options, the type,
// the propagation and the file system's options.
func made(t *testing.T, dir string) (all []string) {
	t.Helper()
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range infos {
		kind, _, _ := strings.Cut(m.Optional, ":") // and the number of a group, which differs
		text := fmt.Sprintf("%s: %s, %s, %s, %q", strings.TrimPrefix(m.Mountpoint, dir), m.Options, m.FSType, kind, m.VFSOptions)
		all = append(all, random.ReplaceAllString(strings.ReplaceAll(text, dir, "DIR"), ""))
	}
	return all
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
}

// target makes a directory that is unmounted at the end of the test.
func target(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH); _ = theirs.UnmountRecursive(dir, unix.MNT_DETACH) })
	return dir
}

func mkdirs(t *testing.T, dirs ...string) {
	t.Helper()
	for _, d := range dirs {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// image makes a file system in a file.
func image(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("this machine has no loop devices")
	}
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 8<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// long are the layers of an overlay whose options are longer than a page.
func long(t *testing.T, base string) string {
	t.Helper()
	var dirs []string
	for i := range 60 {
		dirs = append(dirs, filepath.Join(base, strings.Repeat("long", 20), fmt.Sprint(i), "fs"))
	}
	mkdirs(t, dirs...)
	return "lowerdir=" + strings.Join(dirs, ":")
}

// requirements.md#M1
//
// Both of containerd's package and ours make the same mounts, or both fail.
func TestMountsAreThoseOfContainerd(t *testing.T) {
	needRoot(t)
	base := t.TempDir()
	src, upper, work := filepath.Join(base, "src"), filepath.Join(base, "upper"), filepath.Join(base, "work")
	one, two := filepath.Join(base, "layers/1/fs"), filepath.Join(base, "layers/10/fs")
	mkdirs(t, src, upper, work, one, two)
	lower := "lowerdir=" + one + ":" + two
	for name, m := range map[string]types.Mount{
		"a tmpfs":                        {Type: "tmpfs", Source: "tmpfs"},
		"options of the file system":     {Type: "tmpfs", Source: "tmpfs", Options: []string{"size=4096k", "mode=700", "nosuid", "nodev", "noexec"}},
		"the last of two options":        {Type: "tmpfs", Source: "tmpfs", Options: []string{"ro", "rw", "nosuid", "suid", "noatime", "sync"}},
		"no such option":                 {Type: "tmpfs", Source: "tmpfs", Options: []string{"no-such-option"}},
		"defaults":                       {Type: "tmpfs", Source: "tmpfs", Options: []string{"defaults"}},
		"no such type":                   {Type: "no-such-type", Source: "x"},
		"a bind mount":                   {Type: "bind", Source: src, Options: []string{"rbind", "rw"}},
		"a read-only bind mount":         {Type: "bind", Source: src, Options: []string{"bind", "ro", "nosuid"}},
		"a bind mount without an option": {Type: "bind", Source: src},
		"no source":                      {Type: "bind", Source: filepath.Join(base, "none"), Options: []string{"rbind"}},
		"an overlay":                     {Type: "overlay", Source: "overlay", Options: []string{"workdir=" + work, "upperdir=" + upper, lower}},
		"a read-only overlay":            {Type: "overlay", Source: "overlay", Options: []string{lower, "ro"}},
		"long options":                   {Type: "overlay", Source: "overlay", Options: []string{"index=off", long(t, base)}},
		"long options without a common directory": {Type: "overlay", Source: "overlay", Options: []string{long(t, base) + ":/", "ro"}},
		"too long for a page":                     {Type: "tmpfs", Source: "tmpfs", Options: []string{strings.Repeat("x", 5000)}},
		"mapped ids":                              {Type: "bind", Source: src, Options: []string{"rbind", "uidmap=0:100000:65536", "gidmap=0:200000:10,10:300000:10"}},
		"only uids mapped":                        {Type: "bind", Source: src, Options: []string{"rbind", "uidmap=0:100000:65536"}},
		"no map":                                  {Type: "bind", Source: src, Options: []string{"rbind", "uidmap=0:1", "gidmap=0:1:1"}},
		"a negative map":                          {Type: "bind", Source: src, Options: []string{"rbind", "uidmap=0:-1:1", "gidmap=0:1:1"}},
		"a mapped overlay":                        {Type: "overlay", Source: "overlay", Options: []string{lower, "uidmap=0:100000:65536", "gidmap=0:100000:65536"}},
		"a mapped overlay without layers":         {Type: "overlay", Source: "overlay", Options: []string{"uidmap=0:1:1", "gidmap=0:1:1"}},
		"the manager's work":                      {Type: "tmpfs", Source: "tmpfs", Options: []string{"X-containerd.mkdir.path=/x"}},
		"a target below":                          {Type: "tmpfs", Source: "tmpfs", Target: "below"},
		"a target above":                          {Type: "tmpfs", Source: "tmpfs", Target: "../../below"},
		"a link as the target":                    {Type: "tmpfs", Source: "tmpfs", Target: "link"},
		"no target":                               {Type: "tmpfs", Source: "tmpfs", Target: "none/at/all"},
		"no helper":                               {Type: "fuse3.no-such-helper", Source: "x"},
	} {
		t.Run(name, func(t *testing.T) { sameMount(t, m) })
	}
	for name, options := range map[string][]string{"a loop device": {"loop"}, "a read-only loop device": {"loop", "ro", "noload"}, "direct I/O": {"loop", "direct-io"}} {
		t.Run(name, func(t *testing.T) { sameMount(t, types.Mount{Type: "ext4", Source: image(t), Options: options}) })
	}
}

func sameMount(t *testing.T, m types.Mount) {
	t.Helper()
	prepared := func() string {
		dir := target(t)
		mkdirs(t, filepath.Join(dir, "below"))
		if err := os.Symlink("/below", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	a, b := prepared(), prepared()
	want := (&theirs.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: slices.Clone(m.Options)}).Mount(b)
	wanted := made(t, b)
	_ = theirs.UnmountRecursive(b, 0) // an upper directory serves one overlay at a time
	err := mount.Mount(t.Context(), &m, a)
	if (err == nil) != (want == nil) {
		t.Fatalf("error %v, and containerd's package has %v", err, want)
	}
	if got := made(t, a); !slices.Equal(got, wanted) {
		t.Errorf("mounted\n%q, and containerd's package\n%q", got, wanted)
	}
	if err := mount.Unmount([]*types.Mount{&m}, a); err != nil {
		t.Error(err)
	}
	if left := made(t, a); len(left) > 0 {
		t.Errorf("unmounted, and left are %q", left)
	}
}

func TestLayersOfAMappedOverlayHaveTheNewOwner(t *testing.T) {
	needRoot(t)
	base, dir := t.TempDir(), target(t)
	one, two := filepath.Join(base, "1"), filepath.Join(base, "2")
	mkdirs(t, one, two)
	if err := os.WriteFile(filepath.Join(two, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	m := &types.Mount{Type: "overlay", Source: "overlay", Options: []string{"lowerdir=" + one + ":" + two, "uidmap=0:100000:65536", "gidmap=0:200000:65536"}}
	if err := mount.Mount(t.Context(), m, dir); err != nil {
		t.Skipf("this kernel maps no ids here: %v", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "f"), &st); err != nil || st.Uid != 100000 || st.Gid != 200000 {
		t.Errorf("owner %d:%d, %v", st.Uid, st.Gid, err)
	}
	left, err := os.ReadDir(os.Getenv("XDG_RUNTIME_DIR"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestMountsAreUndoneInReverseOrder(t *testing.T) {
	needRoot(t)
	dir := target(t)
	mounts := []*types.Mount{{Type: "tmpfs", Source: "tmpfs"}, {Type: "tmpfs", Source: "tmpfs", Target: "below"}, {Type: "tmpfs", Source: "tmpfs", Target: "below"}}
	for i, m := range mounts {
		if i == 1 {
			mkdirs(t, filepath.Join(dir, "below"))
		}
		if err := mount.Mount(t.Context(), m, dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := mount.Unmount(mounts, dir); err != nil {
		t.Error(err)
	}
	if left := made(t, dir); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
	if err := mount.Unmount(mounts, filepath.Join(dir, "none")); err != nil {
		t.Errorf("nothing was mounted: %v", err)
	}
}

// A helper is found in $PATH and gets the arguments of mount(8).
func TestAHelperOfFUSEMounts(t *testing.T) {
	needRoot(t)
	bin, dir := t.TempDir(), target(t)
	script := "#!/bin/sh\n[ \"$*\" = \"src $2 -o a -o b -t name\" ] || { echo \"$*\"; exit 3; }\nexec mount -t tmpfs by-helper \"$2\"\n"
	if err := os.WriteFile(filepath.Join(bin, "mount.fuse3"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	if err := mount.Mount(t.Context(), &types.Mount{Type: "fuse3.name", Source: "src", Options: []string{"a", "b"}}, dir); err != nil {
		t.Fatal(err)
	}
	if len(made(t, dir)) != 1 {
		t.Error("nothing is mounted")
	}
	err := mount.Mount(t.Context(), &types.Mount{Type: "fuse3.name", Source: "other"}, dir)
	if err == nil || !strings.Contains(err.Error(), "other "+dir+" -t name") {
		t.Errorf("error %v without the helper's words", err)
	}
}
