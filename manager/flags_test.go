package manager

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// requirements.md#B3
func TestVersionIsPrintedWithoutRoot(t *testing.T) {
	for _, flag := range []string{"-v", "-version", "--version"} {
		stdout, stderr, err := asNobody(t, nil, flag)
		if err != nil || stderr != "" {
			t.Fatalf("%s: %v, stderr %q", flag, err, stderr)
		}
		for _, want := range []string{"1.2.3", "abc", "go1."} {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s printed %q without %s", flag, stdout, want)
			}
		}
	}
}

func TestWithoutRootItIsRefusedInASentence(t *testing.T) {
	for _, action := range [][]string{{"start"}, {"delete"}, nil} {
		stdout, stderr, err := asNobody(t, nil, append([]string{"-namespace", "n", "-id", "c"}, action...)...)
		want := "containerd-shim-rkt-v1: isolating containers needs root, and this is uid 65534\n"
		if err == nil || stdout != "" || stderr != want {
			t.Errorf("%v: %v, stdout %q, stderr %q", action, err, stdout, stderr)
		}
	}
}

// asNobody runs the shim as another user.
func asNobody(t *testing.T, stdin *os.File, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	// The test binary is in a directory that no other user can search.
	dir, err := os.MkdirTemp("/tmp", "rkt-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "containerd-shim-rkt-v1")
	copyProgram(t, program)
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = "/", []string{asShim + "=1", "GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	var out, errOut strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errOut
	if stdin == nil {
		cmd.Stdin = nil
	}
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestStage1IsThatOfTheCalledName(t *testing.T) {
	for argv0, want := range map[string]string{
		"containerd-shim-rkt-v1":                    "",
		"/usr/local/bin/containerd-shim-rkt-v1":     "",
		"/x/containerd-shim-rkt-oci-v1":             "oci",
		"/x/containerd-shim-rkt-my-own-v1":          "my-own",
		"/rkt-oci-v1/containerd-shim-rkt-v1":        "",
		"/x/some-name-that-says-nothing":            "",
		"/x/containerd-shim-rkt-..-v1":              "",
		"/x/containerd-shim-rkt-OCI-v1":             "",
		"/x/containerd-shim-rkt-oci-v1.new":         "",
		"/containerd-shim-rkt-oci-v1/something-els": "",
	} {
		if got := pinnedStage1(argv0); got != want {
			t.Errorf("%s pins %q, want %q", argv0, got, want)
		}
	}
}
