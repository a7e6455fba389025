package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// nerdctl cp writes below /proc/PID/root, where PID is that of the container: in the host's root it
// would replace files of the host. The links are the container's.
func TestTheRootOfAProxyIsThatOfItsAppAndNoLinkLeadsOut(t *testing.T) {
	w := newWorld(t)
	outside := filepath.Join(t.TempDir(), "outside")
	up := strings.Repeat("../", 20)
	for link, target := range map[string]string{"relative": up + outside[1:], "parents": up} {
		if err := os.Symlink(target, filepath.Join(w.rootfs, link)); err != nil {
			t.Fatal(err)
		}
	}
	p := w.add("a")
	pid, files := p.proxy.PID(), p.app.files
	root := fmt.Sprintf("/proc/%d/root", pid)
	for _, path := range []string{"given", "relative", up + "upwards"} {
		// As a string: filepath.Join would remove the steps upwards.
		if err := os.WriteFile(root+"/"+path, []byte("given"), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, name := range []string{"given", "upwards"} {
		if b, err := os.ReadFile(filepath.Join(w.rootfs, name)); err != nil || string(b) != "given" {
			t.Errorf("%s, which was written below the root of the proxy, is not in that of the app: %q, %v", name, b, err)
		}
	}
	if _, err := os.Stat(outside); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link of the container led to the host: %v", err)
	}
	if _, err := os.Stat(root + "/parents/etc"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the files of the host are above those of the container: %v", err)
	}
	if mounts := mountsOf(t, pid); strings.Count(mounts, "\n") != 1 {
		t.Errorf("the proxy has the mounts\n%s", mounts)
	}
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.Enter, App: "a", Exec: "e"}, null(t)); err != nil {
		t.Fatal(err)
	}
	w.s.mu.Lock()
	exec := w.s.apps["a"].execs["e"].proxy.PID()
	w.s.mu.Unlock()
	expectEmptyRoot(t, exec)
	w.inShare(func() {
		if _, err := os.Stat(filepath.Join("/", Roots, files.dir, "given")); err != nil {
			t.Errorf("the machine has lost the root of the app: %v", err)
		}
	})
}

// Stage 0 inherits the proxies of a supervisor that was killed. It took an exit with 0 for that of the app.
func TestAProxyEndsWithItsSupervisorAsIfItWasKilled(t *testing.T) {
	p := newWorld(t).add("a")
	_ = p.release.Close() // as the kernel does
	if e := p.proxy.Wait(); e.Code != 137 {
		t.Errorf("the proxy has ended with %+v", e)
	}
}

func TestTheProxyOfAHolderHasAnEmptyRoot(t *testing.T) {
	sandbox, err := NewSandbox(podOf("network", "uts", "ipc", "pid"))
	if err != nil {
		t.Fatal(err)
	}
	ready, err := newWorldOf(t, sandbox).s.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	expectEmptyRoot(t, ready.PID)
}

// expectEmptyRoot expects that the root of a process is a directory without files that nobody can write.
func expectEmptyRoot(t *testing.T, pid int) {
	t.Helper()
	root := fmt.Sprintf("/proc/%d/root/", pid)
	if files, err := os.ReadDir(root); err != nil || len(files) > 0 {
		t.Errorf("the root has %v (%v)", files, err)
	}
	if err := os.WriteFile(root+"given", nil, 0o644); err == nil {
		t.Error("the root can be written")
	}
}

func mountsOf(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
