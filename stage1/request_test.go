package stage1

import (
	"os"
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
