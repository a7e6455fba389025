package stage1

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

// nobody is a user of the host without any right.
const nobody = 65534

// asNobody executes a program as nobody and returns what it writes.
func asNobody(path string, args ...string) (string, error) {
	c := exec.Command(path, args...)
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	defer children.Expect()() // the command's process is not to be reaped as an orphan
	out, err := c.Output()
	return strings.TrimSpace(string(out)), err
}

// publicDir returns a temporary directory that every user of the host may enter.
func publicDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// setIDImage makes an image directory with a set-id program, bin/id, and returns the
// image's directory.
func setIDImage(t *testing.T) string {
	t.Helper()
	id, err := os.ReadFile("/usr/bin/id")
	if err != nil {
		t.Skip(err)
	}
	dir := stage1test.Dir(t, nil)
	program := filepath.Join(dir, "rootfs/bin/id")
	if err := os.Mkdir(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, id, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(program, fs.ModeSetuid|0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := asNobody(program, "-u"); err != nil || out != "0" {
		t.Skipf("set-id programs have no effect below %s: %q, %v", dir, out, err)
	}
	return dir
}

// CVE-2021-41103 of containerd: the root file systems of containers, with their set-id
// programs, could be reached by every user of the host.
func TestUsersOfTheHostReachNoSetIDProgramOfAnImage(t *testing.T) {
	stage1test.RequireRoot(t)
	dir := setIDImage(t)
	for name, prepare := range map[string]func(t *testing.T, data string){
		"a new data directory": func(*testing.T, string) {},
		// An earlier release has left directories with other modes, and pods that run.
		"an existing one": func(t *testing.T, data string) {
			for _, d := range []string{"trees/known", "pods/run"} {
				if err := os.MkdirAll(filepath.Join(data, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			data := filepath.Join(publicDir(t), "rkt")
			prepare(t, data)
			podDir := filepath.Join(data, "pods/run", podUUID)
			old := syscall.Umask(0)
			defer syscall.Umask(old)
			if _, err := disk.OpenStore(data); err != nil {
				t.Fatal(err)
			}
			images, err := image.OpenStore(data)
			if err != nil {
				t.Fatal(err)
			}
			i, err := images.Image(t.Context(), dir, "")
			if err != nil {
				t.Fatal(err)
			}
			defer i.Close()
			s := New(i, i.Name(), children)
			if err := os.Mkdir(podDir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := s.Attach(podDir); err != nil {
				t.Fatal(err)
			}
			defer s.Detach(podDir)
			for _, root := range []string{i.Rootfs(), filepath.Join(podDir, RootfsDir)} {
				program := filepath.Join(root, "bin/id")
				st, err := os.Stat(program)
				if err != nil || st.Mode() != fs.ModeSetuid|0o755 {
					t.Errorf("%s: %v, %v: the image's modes are to stay", program, st.Mode(), err)
				}
				if out, err := asNobody(program, "-u"); !errors.Is(err, fs.ErrPermission) {
					t.Errorf("as nobody, %s says that it is %q, %v", program, out, err)
				}
			}
		})
	}
}
