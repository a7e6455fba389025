package datadir_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/pod/datadir"
)

func mode(t *testing.T, dir string) fs.FileMode {
	t.Helper()
	st, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	return st.Mode()
}

func TestADirectoryHasItsModeWhateverItHadAndWhateverTheUmask(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	base := t.TempDir()
	for name, c := range map[string]struct{ before, want fs.FileMode }{
		"new":         {0, 0o711},
		"of old":      {0o755, 0o711},
		"too private": {0o700, 0o711},
		"rkt's":       {fs.ModeSetgid | 0o775, fs.ModeSetgid | 0o711},
	} {
		dir := filepath.Join(base, name)
		if c.before != 0 {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, c.before); err != nil {
				t.Fatal(err)
			}
		}
		if err := datadir.Make(dir, datadir.Mode); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := mode(t, dir); got != c.want|fs.ModeDir {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A data directory that is /tmp by mistake must not be closed to everybody else.
func TestADirectoryOfEverybodysIsRefusedAndNotChanged(t *testing.T) {
	for _, before := range []fs.FileMode{fs.ModeSticky | 0o777, 0o777, fs.ModeSetgid | 0o777, fs.ModeSticky | 0o755, 0o773} {
		dir := t.TempDir()
		if err := os.Chmod(dir, before); err != nil {
			t.Fatal(err)
		}
		if err := datadir.Make(dir, datadir.Mode); err == nil || !strings.Contains(err.Error(), "used for nothing else") {
			t.Errorf("%v: %v", before, err)
		}
		if got := mode(t, dir); got != fs.ModeDir|before {
			t.Errorf("%v: its mode is now %v", before, got)
		}
	}
}

func TestADirectoryOnAReadOnlyFileSystemCanBeOpened(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", unix.MS_RDONLY, "mode=755"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	if err := datadir.Make(dir, datadir.Mode); err != nil {
		t.Error(err)
	}
}

func TestAPathThatCannotBeUsedIsRefusedWithTheReason(t *testing.T) {
	for path, want := range map[string]string{"rkt": "rkt is not an absolute path", "/a\xff": `"/a\xff" is not UTF-8`, "/var/lib/rkt": ""} {
		err := datadir.Check(path)
		if got := fmt.Sprint(err); want != "" && got != want || want == "" && err != nil {
			t.Errorf("%q: %v, want %s", path, err, want)
		}
	}
}
