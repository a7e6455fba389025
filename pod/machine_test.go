package pod

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

func TestTheCgroupsThatAPodIsNamedInGoWithItsDirectory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to make cgroups")
	}
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil || len(mounts) == 0 {
		t.Skipf("no cgroups here: %v", err)
	}
	d := newDir(t, newStore(t))
	name := `machine-rkt\x2d` + strings.ReplaceAll(d.UUID(), "-", `\x2d`) + ".scope"
	if err := os.WriteFile(filepath.Join(d.Path(), "subcgroup"), []byte("/"+name), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		dir := filepath.Join(m.Mountpoint, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
	}
	if err := d.Remove(soon(t)); err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		if _, err := os.Lstat(filepath.Join(m.Mountpoint, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("in %s: %v", m.Mountpoint, err)
		}
	}
}
