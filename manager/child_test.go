package manager

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mounted makes a bundle in which something is mounted.
func (d *daemon) mounted(namespace, id string) {
	d.t.Helper()
	root := filepath.Join(d.bundle(namespace, id, nil), "rootfs")
	if err := os.MkdirAll(root, 0o711); err != nil {
		d.t.Fatal(err)
	}
	if err := unix.Mount("test", root, "tmpfs", 0, "size=4k"); err != nil {
		d.t.Skipf("needs root, to mount: %v", err)
	}
	d.t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			d.t.Error(err)
		}
	})
}

// requirements.md#D3
func TestWhatHasMountsIsCollectedByAnotherProcess(t *testing.T) {
	d := newDaemon(t)
	d.mounted("ns", "c1")
	at := time.Unix(1732159865, 123456789)
	d.plan("ns", "c1", collectPlan{Exit: Exit{PID: 77, Status: 42, At: at}})
	if r := d.deleted("ns", "c1"); r.Pid != 77 || r.ExitStatus != 42 || !r.ExitedAt.AsTime().Equal(at) {
		t.Errorf("delete answered %v", r)
	}
	d.plan("ns", "c1", collectPlan{Fail: "the cgroup is busy"})
	if out := d.delete("ns", "c1"); out.err == nil || len(out.stdout) > 0 || !strings.Contains(string(out.stderr), "delete c1: ") || !strings.Contains(string(out.stderr), "the cgroup is busy") {
		t.Errorf("delete ended with %v, stdout %q, stderr %q", out.err, out.stdout, out.stderr)
	}
	d.plan("ns", "c1", collectPlan{Hang: true})
	start := time.Now()
	if out := d.delete("ns", "c1"); out.err == nil || !strings.Contains(string(out.stderr), "goes on with it: not done after "+deleteBudget.String()) {
		t.Errorf("delete ended with %v, stderr %q", out.err, out.stderr)
	}
	if took := time.Since(start); took < deleteBudget {
		t.Errorf("delete gave up after %v", took)
	}
}
