package stuckfs

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAnUnmountHangsUntilItIsReleased(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	dir := t.TempDir() + "/mnt"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	fs, err := Mount(dir)
	if err != nil {
		t.Skipf("the kernel has no FUSE or no loop devices: %v", err)
	}
	defer fs.Close()
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		t.Errorf("stat: %v, %v", st, err)
	}
	unmounted := make(chan error, 1)
	go func() { unmounted <- unix.Unmount(dir, 0) }()
	select {
	case <-fs.Stuck():
	case <-time.After(30 * time.Second):
		t.Fatal("the unmount does not hang")
	}
	select {
	case err := <-unmounted:
		t.Errorf("the unmount has returned: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	fs.Release()
	if err := <-unmounted; err != nil {
		t.Error(err)
	}
}
