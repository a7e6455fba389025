package oci

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// badPrograms cannot be executed. words is the phrase for which clients look in the
// error. Only for a directory runc 1.1 has another phrase.
var badPrograms = []struct {
	name  string
	args  []string
	cwd   string
	words string
}{
	{"missing in PATH", []string{"absent"}, "/", "executable file not found in $PATH"},
	{"missing", []string{"/absent"}, "/", "no such file or directory"},
	{"not executable", []string{"/bin/data"}, "/", "permission denied"},
	{"a directory", []string{"/bin"}, "/", "permission denied"},
	{"a file as directory", []string{"true"}, "/bin/data", "not a directory"},
	{"a name to be quoted", []string{`a"b\c<d>&é`}, "/", `exec: "a\"b\\c<d>&é": executable file not found`},
}

func TestAFailedAddSaysWhyAndLeavesNothing(t *testing.T) {
	p := startPod(t)
	for _, bad := range badPrograms {
		a := p.app("web", func(s *specs.Spec) { s.Process.Cwd = bad.cwd }, bad.args...)
		text := expectCode(t, bad.name, 1, a.tryAdd(p.patience))
		if !strings.Contains(text, bad.words) {
			t.Errorf("%s: %q, want %q in it", bad.name, text, bad.words)
		}
		if strings.Contains(text, "\n") || strings.Count(text, "unable to start") > 1 {
			t.Errorf("%s: it is said twice: %q", bad.name, text)
		}
		if left := p.apps(); len(left) > 0 {
			t.Fatalf("%s: state of %v is left", bad.name, left)
		}
		if left := pids(t, filepath.Dir(a.group.ABI().Dirs[0])); len(left) > 0 {
			t.Errorf("%s: processes %v are left", bad.name, left)
		}
		must(t, a.group.Remove(p.patience)) // for the next one of this name
	}
}

// On a full disk the runtime cannot log its error.
func TestAFailureOnAFullDiskSaysThatTheDiskIsFull(t *testing.T) {
	p := newPod(t, "")
	must(t, unix.Mount("tmpfs", p.dir, "tmpfs", 0, "size=1m,mode=755"))
	t.Cleanup(func() { must(t, unix.Unmount(p.dir, unix.MNT_DETACH)) })
	lib, err := filepath.Abs("rootfs/lib.sh")
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(p.dir, "stage1/rootfs/rkt/oci/apps/a"), 0o755))
	if err := os.WriteFile(filepath.Join(p.dir, "filling"), make([]byte, 2<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	script := ". " + lib + "; chosen() { runtime=false flags= root=/; }; oci x"
	cmd := exec.Command("sh", "-c", script, filepath.Join(filepath.Dir(lib), "enter"))
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "RKT_STAGE1_REQUEST=x", "RKT_APP=a", "RKT_ERROR_FD=2")
	out, _ := cmd.CombinedOutput()
	if want := "false ended with code 1, and without a word; its error is lost"; !strings.Contains(string(out), want) || !strings.Contains(string(out), "No space left on device") {
		t.Errorf("%s, want %q and why", out, want)
	}
}

// containerd's own PATH may have its programs only.
func TestAPathWithoutTheSystemsProgramsHasNoOtherRuntime(t *testing.T) {
	lib, err := filepath.Abs("rootfs/lib.sh")
	must(t, err)
	cmd := exec.Command("/bin/sh", "-c", ". "+lib+"; mkdir -p . && chosen", filepath.Join(filepath.Dir(lib), "enter"))
	cmd.Env = []string{"PATH=" + t.TempDir(), "RKT_STAGE1_REQUEST=x", "RKT_ERROR_FD=2"}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), "there is no OCI runtime in "+cmd.Env[0][len("PATH="):]+":") {
		t.Errorf("%s (%v)", out, err)
	}
}

func TestWhatTheRuntimeRefusesIsNamed(t *testing.T) {
	p := startPod(t)
	for words, change := range map[string]func(*specs.Spec){
		`time`: func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.TimeNamespace})
		},
		"apparmor": func(s *specs.Spec) { s.Process.ApparmorProfile = "absent" },
		"selinux":  func(s *specs.Spec) { s.Process.SelinuxLabel = "system_u:system_r:container_t:s0" },
		"SCMP_ACT_NOTHING": func(s *specs.Spec) {
			s.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: "SCMP_ACT_NOTHING"}
		},
	} {
		a := p.app("web", change, "true")
		if text := expectCode(t, words, 1, a.tryAdd(p.patience)); !strings.Contains(text, words) {
			t.Errorf("%q, want %q in it", text, words)
		}
		must(t, a.group.Remove(p.patience))
	}
}

// The scripts must not write to the app's streams. The runtime writes its own last
// error there: docs/adr/0007.
func TestAFailedAddWritesNothingOfItsOwnToTheApp(t *testing.T) {
	p := startPod(t)
	for name, path := range map[string]string{"of the runtime": os.Getenv("PATH"), "of the scripts": withoutRuntime(t)} {
		t.Setenv("PATH", path)
		out, stdout := pipe(t)
		a := p.app("web", nil, "absent")
		text := expectCode(t, name, 1, a.tryAdd(p.patience, nil, stdout, stdout))
		stdout.Close()
		b, err := io.ReadAll(out)
		must(t, err)
		if got := strings.TrimSpace(string(b)); got != "" && got != text {
			t.Errorf("the failure %s, %q, is in the app's streams as %q", name, text, got)
		} else if got != "" && path == withoutRuntime(t) {
			t.Errorf("%q is in the app's streams", got)
		}
		must(t, a.group.Remove(p.patience))
	}
}

// withoutRuntime makes a directory of what the scripts need, and no more.
func withoutRuntime(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, program := range []string{"cat", "grep", "mkdir", "mkfifo", "rm", "rmdir", "sed", "tr"} {
		path, err := exec.LookPath(program)
		must(t, err)
		must(t, os.Symlink(path, filepath.Join(dir, program)))
	}
	return dir
}

func TestWithoutARuntimeTheErrorSaysWhatToInstall(t *testing.T) {
	p := newPod(t, "")
	t.Setenv("PATH", withoutRuntime(t))
	p.run()
	a := p.app("web", nil, "true")
	if text := expectCode(t, "app/add", 1, a.tryAdd(p.patience)); !strings.Contains(text, "install runc or crun") {
		t.Errorf("error %q", text)
	}
	p.expect(0, abi.AppRm, "web")
	p.expect(0, abi.Stop, "")
	p.over()
}

// runc bind-mounts its own binary read-only into its directory and executes that copy. If
// it is killed at that moment, it leaves the mount there.
func TestRmUnmountsWhatAKilledRuntimeHasBound(t *testing.T) {
	p := startPod(t)
	a := p.app("web", nil, "sleep", "100000").add()
	p.expect(0, abi.AppStop, "web")
	a.ends(t, 137)
	state := filepath.Join(p.dir, stateDir, "apps", "web", "run", container("web"))
	must(t, os.MkdirAll(state, 0o700))
	bound := filepath.Join(state, "runc.aPRN5F")
	must(t, os.WriteFile(bound, nil, 0o600))
	must(t, unix.Mount("/bin/true", bound, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(bound, unix.MNT_DETACH) })
	p.expect(0, abi.AppRm, "web")
	if left := p.apps(); len(left) > 0 {
		t.Errorf("state of %v is left", left)
	}
}
