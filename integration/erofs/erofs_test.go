package erofs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The kernel reads what Write has written.
func TestAnImageHasTheFilesOfItsDirectory(t *testing.T) {
	dir := t.TempDir()
	tree, image, mounted := filepath.Join(dir, "tree"), filepath.Join(dir, "image"), filepath.Join(dir, "mounted")
	if err := errors.Join(os.MkdirAll(filepath.Join(tree, "many/empty"), 0o755), os.Mkdir(mounted, 0o755)); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"file": "text", "empty": "", "-first": "x", "block": strings.Repeat("b", blockSize), "large": strings.Repeat("0123456", 30_000),
	} {
		if err := os.WriteFile(filepath.Join(tree, name), []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 500 { // several blocks of entries
		if err := os.WriteFile(filepath.Join(tree, "many", fmt.Sprint(strings.Repeat("n", i%40), i)), fmt.Append(nil, i), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chown(filepath.Join(tree, "file"), 7, 8), os.Symlink("../large", filepath.Join(tree, "many/link"))); err != nil {
		t.Fatal(err)
	}
	if err := Write(image, tree); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "erofs", "-o", "loop,ro", image, mounted).CombinedOutput(); err != nil {
		t.Skipf("this host mounts no erofs: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", mounted).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	got, want := files(t, mounted), files(t, tree)
	if !maps.Equal(got, want) {
		t.Errorf("the image has %d files, the directory %d", len(got), len(want))
	}
	for path, is := range want {
		if got[path] != is {
			t.Errorf("%s is %.80q, want %.80q", path, got[path], is)
		}
	}
}

func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		out, err := exec.Command("stat", "-c", "%A %u:%g %h %N", path).Output()
		if err != nil {
			return err
		}
		is := strings.ReplaceAll(string(out), dir, "")
		if d.Type().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			is += string(content)
		}
		all[strings.TrimPrefix(path, dir)] = is
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAFileThatAnImageCannotHaveIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := exec.Command("mkfifo", filepath.Join(dir, "pipe")).Run(); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(t.TempDir(), "image"), dir); err == nil || !strings.Contains(err.Error(), "neither file, directory nor link") {
		t.Errorf("%v", err)
	}
}
