package enclosure

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// TestMain also serves as the program that is executed inside. It runs its first argument as a
// shell script.
func TestMain(m *testing.M) {
	if !Inside() {
		os.Exit(m.Run())
	}
	if err := enter(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(100)
	}
	code, err := Exec(Program{
		Path: "/bin/sh", Args: []string{"sh", "-c", os.Args[1]}, Env: os.Environ(), Dir: "/",
		Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(100)
	}
	os.Exit(code)
}

// run runs a script in a new enclosure and returns its output.
func run(t *testing.T, script string) (string, Enclosure, error) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making namespaces needs root")
	}
	var out, diagnostics bytes.Buffer
	e := Enclosure{Dir: t.TempDir(), Args: []string{script}, Stdout: &out, Stderr: &diagnostics}
	if err := e.Prepare(); err != nil {
		t.Fatal(err)
	}
	code, err := e.Run(t.Context())
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	if diagnostics.Len() > 0 {
		t.Logf("stderr: %s", &diagnostics)
	}
	return out.String(), e, err
}

func TestWhatIsWrittenInsideIsNotOnTheMachine(t *testing.T) {
	name := fmt.Sprintf("enclosure-test-%d", os.Getpid())
	files := []string{"/run/" + name, "/tmp/" + name, "/opt/" + name, "/var/lib/" + name, "/etc/" + name}
	if _, _, err := run(t, "touch "+strings.Join(files, " ")); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, err := os.Lstat(f); err == nil {
			t.Errorf("%s is on the machine", f)
			os.Remove(f)
		}
	}
}

func TestAFileAtPathIsInside(t *testing.T) {
	_, e, err := run(t, "echo hello >/var/lib/greeting")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(e.Path("/var/lib/greeting"))
	if string(b) != "hello\n" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestNobodyElseIsSeenInside(t *testing.T) {
	out, _, err := run(t, `cd /proc; for p in [0-9]*; do echo "$p"; done; echo interfaces; ls /proc/self/net/dev_snmp6 2>/dev/null; cut -d: -f3 /proc/self/cgroup | sort -u`)
	if err != nil {
		t.Fatal(err)
	}
	processes, rest, _ := strings.Cut(out, "interfaces\n")
	if n := strings.Count(processes, "\n"); n != 2 { // the first process and the shell
		t.Errorf("%d processes:\n%s", n, processes)
	}
	for _, line := range strings.Fields(rest) {
		if line != "lo" && line != "/" && line != "/init" {
			t.Errorf("seen: %s", line)
		}
	}
}

func TestTheLoopbackInterfaceIsUp(t *testing.T) {
	out, _, err := run(t, `cat /proc/self/net/if_inet6 /proc/self/net/fib_trie`)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "127.0.0.1") {
		t.Errorf("no route to 127.0.0.1:\n%s", out)
	}
}

func TestCgroupsMadeInsideAreGone(t *testing.T) {
	out, _, err := run(t, `awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts | while read d; do mkdir -p "$d/deep/down" && echo "$d"; done`)
	if err != nil {
		t.Fatal(err)
	}
	dirs := strings.Fields(out)
	if len(dirs) == 0 {
		t.Fatal("no hierarchy is mounted inside")
	}
	for _, d := range dirs {
		left, err := filepath.Glob(filepath.Join(d, fmt.Sprintf("enclosure-%d-*", os.Getpid())))
		if err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		if _, err := os.Stat(filepath.Join(d, "deep")); err == nil {
			t.Errorf("%s/deep is in the machine's hierarchy", d)
		}
	}
}

func TestADaemonEndsWithTheEnclosure(t *testing.T) {
	mark := fmt.Sprintf("%d.25", 900000+os.Getpid())
	if _, _, err := run(t, "setsid sleep "+mark+" & setsid sleep "+mark+" & sleep 0.1"); err != nil {
		t.Fatal(err)
	}
	wait.Observe(t, "nothing of it is there", func() (bool, string) {
		out, err := exec.Command("pgrep", "-f", mark).Output()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Skipf("pgrep: %v", err)
		}
		return len(out) == 0, string(out)
	})
}

func TestDescriptorsOfTheParentAreNotInside(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making namespaces needs root")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Go closes its own descriptors on exec, so a shell opens this one.
	cmd := exec.Command("/bin/sh", "-c", `exec 9</dev/zero; exec "$0" -test.run '^TestHelperWithADescriptor$'`, self)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "descriptor 9 is []") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// TestHelperWithADescriptor is run by TestDescriptorsOfTheParentAreNotInside.
func TestHelperWithADescriptor(t *testing.T) {
	out, _, err := run(t, `echo "descriptor 9 is [$(readlink /proc/$$/fd/9)]"`)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Print(out)
}

func TestTheExitCodeIsThatOfTheProgram(t *testing.T) {
	if _, _, err := run(t, "exit 7"); err == nil || err.Error() != "exit code 7" {
		t.Errorf("%v", err)
	}
}
