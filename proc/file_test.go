package proc_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func TestReadFileReadsAllOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, size := range []int{0, 1, 511, 512, 513, 100_000} {
		want := bytes.Repeat([]byte("x"), size)
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := proc.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes of %d: %v", len(got), size, err)
		}
		if got, err := proc.ReadOnce(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("ReadOnce: %d bytes of %d: %v", len(got), size, err)
		}
	}
	if got, err := proc.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Count(got, []byte("\n")) < 2 {
		t.Errorf("%d bytes of a file without a size: %v", len(got), err)
	}
	if _, err := proc.ReadFile(path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := proc.ReadOnce(path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadOnce: no file: %v", err)
	}
}

func TestWriteFileReplacesTheContent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("something long"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := proc.WriteFile(path, "a\n", "b\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "a\nb\n" {
		t.Errorf("%q, %v", got, err)
	}
	if err := proc.WriteFile(filepath.Join(path, "x"), "a"); err == nil {
		t.Error("a file below a file was written")
	}
}
