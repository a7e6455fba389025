package machine

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A guest that has taken QEMU over reaches nothing of the host.
func TestNothingCanBeReachedFromTheJail(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes a jail")
	}
	dir := t.TempDir()
	attack := filepath.Join(dir, "attack")
	release := Children.Expect()
	cmd := exec.Command("go", "build", "-o", attack, "./testdata/attack")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	release()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	abstract := "rkt-jail-" + strconv.Itoa(os.Getpid())
	listener, err := net.Listen("unix", "@"+abstract)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if id, err := unix.SysvShmGet(0x6b766d, 4096, unix.IPC_CREAT|0o666); err != nil {
		t.Fatal(err)
	} else {
		defer unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	}
	for _, kvm := range []bool{false, true} {
		const user = 0x70000000 + 65535
		guest, err := newMemory(4096, user)
		if err != nil {
			t.Fatal(err)
		}
		defer guest.close()
		j := &jail{dir: filepath.Join(dir, "jail"), files: map[string]string{"attack": attack}, memory: guest, kvm: kvm, user: user}
		if _, err := os.Stat(kvmDevice); kvm && err != nil {
			t.Logf("without the device: %v", err)
			continue
		}
		if err := os.Mkdir(j.dir, 0o700); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p, err := start(&Config{Children: Children}, &program{
			argv: []string{"/attack", strconv.Itoa(os.Getpid()), abstract}, files: []*os.File{r}, sys: j.attributes(), prepare: j.prepare,
		})
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.thread.do(j.empty); err != nil {
			t.Error(err)
		}
		if _, err := w.WriteString("x"); err != nil {
			t.Error(err)
		}
		w.Close()
		p.end()
		if got := p.said(); got != "tried" {
			t.Errorf("the attacker %s", strings.ReplaceAll(got, "\n", "\n\t"))
		}
		if entries, err := os.ReadDir(j.dir); err != nil || len(entries) > 0 {
			t.Errorf("the host sees %v in the jail's directory: %v", entries, err)
		}
	}
}

func TestNoTwoMachinesHaveAUserInCommon(t *testing.T) {
	u := Users{First: 1000, Count: 2, Dir: filepath.Join(t.TempDir(), "users")}
	a, first, err := u.claim()
	if err != nil {
		t.Fatal(err)
	}
	b, second, err := u.claim()
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if a != 1000 || b != 1001 {
		t.Errorf("claimed %d and %d", a, b)
	}
	if _, _, err := u.claim(); err == nil || !strings.Contains(err.Error(), "all 2 ids from 1000 on are in use") {
		t.Errorf("claimed a third one: %v", err)
	}
	first.Close() // as the kernel does when the process is killed
	if again, f, err := u.claim(); err != nil || again != a {
		t.Errorf("claimed %d: %v", again, err)
	} else {
		f.Close()
	}
}
