package stage1

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// A pod whose disk is full can still be stopped: the request is in memory then.
func TestARequestNeedsNoRoomOnTheDisk(t *testing.T) {
	full := t.TempDir()
	if err := unix.Mount("tmpfs", full, "tmpfs", 0, "nr_inodes=1"); err != nil {
		t.Skipf("needs root to mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(full, 0); err != nil {
			t.Error(err)
		}
	})
	k := Call{Call: pod.Call{Dir: full}}
	path, err := k.document("request-*", []byte(`{"entrypoint":"stop"}`))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(path, "/proc/") {
		t.Errorf("the document is %s, where there is no room", path)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, %v; want mode 0600", path, st, err)
	}
	for range 2 { // a script may read it as often as it wants
		if b, err := os.ReadFile(path); err != nil || string(b) != `{"entrypoint":"stop"}` {
			t.Errorf("read %q, %v", b, err)
		}
	}
	k.close()
	if _, err := os.Stat(path); err == nil {
		t.Error("the document is there after the call")
	}
}

// A terminal for an operator who frees the disk needs no room there.
func TestTheConsoleSocketIsInTheBundleIfTheDiskDoesNotTakeIt(t *testing.T) {
	noDirectory := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(noDirectory, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k := &Call{Call: pod.Call{Dir: noDirectory}}
	if _, err := k.listen(); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("without a bundle: %v", err)
	}
	k.Request.Bundle = t.TempDir()
	c, err := k.listen()
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(c.Path) != k.Request.Bundle {
		t.Errorf("it is %s, and the bundle %s", c.Path, k.Request.Bundle)
	}
	c.Close()
	if left, err := os.ReadDir(k.Request.Bundle); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A disk that is full, read-only or broken must not keep a stage1 from ending a pod.
func TestADocumentThatTheDiskDoesNotTakeIsInMemory(t *testing.T) {
	noDirectory := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(noDirectory, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k := &Call{Call: pod.Call{Dir: noDirectory}}
	path, err := k.document("request-*", []byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range k.memory {
		defer f.Close()
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "text" || !strings.HasPrefix(path, "/proc/") {
		t.Errorf("%s has %q, %v", path, text, err)
	}
	k.Dir = filepath.Join(t.TempDir(), "gone")
	if path, err := k.document("request-*", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a pod that is gone: %q, %v", path, err)
	}
}
