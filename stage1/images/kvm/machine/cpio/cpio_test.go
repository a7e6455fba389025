package cpio_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine/cpio"
)

func TestMain(m *testing.M) { os.Exit(wait.Run(m)) }

func TestBusyboxUnpacksAnArchive(t *testing.T) {
	var archive bytes.Buffer
	w := cpio.NewWriter(&archive)
	w.Dir("d")
	w.File("d/odd", 0o755, 3, strings.NewReader("abc"))
	w.File("empty", 0o644, 0, nil)
	w.Program("program", 3, strings.NewReader("abc"))
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	if archive.Len()%4 != 0 {
		t.Errorf("the next archive would begin at %d", archive.Len())
	}
	dir := t.TempDir()
	cmd := exec.Command("busybox", "cpio", "-i")
	cmd.Dir, cmd.Stdin = dir, &archive
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "d/odd")); err != nil || string(b) != "abc" {
		t.Errorf("d/odd has %q: %v", b, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "d/odd")); err != nil || info.Mode() != 0o755 {
		t.Errorf("d/odd is %v: %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "empty")); err != nil || info.Size() != 0 {
		t.Errorf("empty is %v: %v", info, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "program"), &st); err != nil || st.Mode != unix.S_IFREG|0o711 || st.Uid != 1<<32-2 || st.Gid != st.Uid {
		t.Errorf("the program is of %d:%d with mode %#o: %v", st.Uid, st.Gid, st.Mode, err)
	}
}

func TestAShortFileIsAnError(t *testing.T) {
	w := cpio.NewWriter(&bytes.Buffer{})
	w.File("short", 0o644, 4, strings.NewReader("abc"))
	if err := w.End(); err == nil || !strings.Contains(err.Error(), "short: 3 of 4 bytes") {
		t.Errorf("the error is %v", err)
	}
}

type full struct{}

var errFull = errors.New("full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestAFailedWriteIsTheErrorOfTheArchive(t *testing.T) {
	w := cpio.NewWriter(full{})
	w.Dir("d")
	if err := w.End(); !errors.Is(err, errFull) {
		t.Errorf("the error is %v", err)
	}
}
