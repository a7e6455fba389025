package manager

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// requirements.md#B2
func TestFlagsAreReadInGoSyntax(t *testing.T) {
	all := "-namespace ns --id=c1 -address /run/c.sock -publish-binary /bin/c -bundle /b -debug=true -socket s -debug-socket d delete"
	f, err := parseFlags(strings.Fields(all))
	if err != nil {
		t.Fatal(err)
	}
	want := flags{namespace: "ns", id: "c1", address: "/run/c.sock", publishBinary: "/bin/c", bundle: "/b",
		debug: true, socket: "s", debugSocket: "d", action: "delete"}
	if got := *f; got.unknown != nil || got.namespace != want.namespace || got.id != want.id || got.address != want.address ||
		got.publishBinary != want.publishBinary || got.bundle != want.bundle || !got.debug || got.socket != want.socket ||
		got.debugSocket != want.debugSocket || got.action != want.action {
		t.Errorf("parsed %+v, want %+v", got, want)
	}
}

// requirements.md#B2
func TestUnknownFlagsAreNotFatalForDelete(t *testing.T) {
	for args, want := range map[string]string{
		"-new -id c1 delete":               "-new",
		"-new=1 -id c1 delete":             "-new=1",
		"-id c1 -new value delete":         "-new",
		"-id c1 -new delete":               "-new",
		"-id c1 -new delete delete":        "-new",
		"--new --other 1 -id c1 delete":    "--new --other",
		"-id c1 -new value -debug delete":  "-new",
		"-id c1 -new start -debug delete ": "-new",
	} {
		f, err := parseFlags(strings.Fields(args))
		if err != nil || f.action != "delete" || f.id != "c1" || !slices.Equal(f.unknown, strings.Fields(want)) {
			t.Errorf("%s: parsed %+v, %v", args, f, err)
		}
	}
}

// requirements.md#B2
func TestWrongArgumentsAreRefused(t *testing.T) {
	for args, want := range map[string]string{
		"-new -id c1 start":    "unknown flag -new",
		"-id c1 -new":          "unknown flag -new",
		"-id c1 restart":       `unknown action "restart"`,
		"-debug=perhaps start": "debug",
		"-id":                  "-id",
	} {
		if _, err := parseFlags(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// requirements.md#B5
func TestNamespaceAndIDMustBeNames(t *testing.T) {
	for _, f := range []flags{{id: "c"}, {namespace: "n"}, {namespace: "../n", id: "c"}, {namespace: "n", id: ".."}, {namespace: "n", id: "a/b"}} {
		if f.check() == nil {
			t.Errorf("namespace %q with id %q is accepted", f.namespace, f.id)
		}
	}
}

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
