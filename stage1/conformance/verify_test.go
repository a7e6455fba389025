package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/conformance"
)

// built has the programs for the tests: rktctl, linked statically as it is installed, and the
// bundled images. The first test that needs them builds them.
var built struct {
	sync.Once
	dir string
	err error
}

// atOnce is how many tests run at the same time, without -parallel: they mostly wait.
const atOnce = "8"

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", atOnce); err != nil {
		panic(err)
	}
	code := wait.Run(m)
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

func rktctl(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a stage1 needs root")
	}
	built.Do(func() { built.dir, built.err = build() })
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "rktctl")
}

func build() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "conformance-test-"); err != nil {
		return "", err
	}
	compile := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "rktctl"), "../../cmd/rktctl")
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	liar := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "liar"), "./testdata/liar")
	machine := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "machine"), "./testdata/machine")
	liar.Env, machine.Env = compile.Env, compile.Env
	for _, c := range []*exec.Cmd{compile, liar, machine, exec.Command("../../scripts/stage1-images", filepath.Join(dir, "stage1"))} {
		if out, err := c.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("%s: %v\n%s", c, err, out)
		}
	}
	return dir, nil
}

// bundledImage returns the directory of a bundled image.
func bundledImage(t *testing.T, name string) string {
	t.Helper()
	rktctl(t)
	switch name {
	case "oci":
		needRunc(t)
	case "nspawn":
		need(t, "systemd-nspawn")
	}
	return filepath.Join(built.dir, "stage1", name)
}

func needRunc(t *testing.T) { t.Helper(); need(t, "runc") }

func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skip("needs " + program)
	}
}

// verified is the result of a verification.
type verified struct {
	Level, Claimed int
	Holds, Whole   bool
	Checks         []verifiedCheck
	Capabilities   []struct{ Name, Value string }
	Overhead       *struct{ PodBytes, FurtherAppBytes int64 }

	code           int
	stdout, stderr string
}

type verifiedCheck struct {
	ID, Outcome, Reason, Words, Sentence, Section, Kept string
	Level                                               int
}

// verify runs rktctl stage1 verify, in a directory for temporary files of its own,
// which has to be empty afterwards.
func verify(t *testing.T, args ...string) verified {
	t.Helper()
	return run(t, "verify", args...)
}

// run runs a verb of rktctl stage1 as verify does.
func run(t *testing.T, verb string, args ...string) verified {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), rktctl(t), append([]string{"stage1", verb}, args...)...)
	tmp := reachable(t)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	// On SIGTERM rktctl cleans up.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return verified{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

// reachable makes a directory that users in user namespaces may enter.
func reachable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o711))
	must(t, os.Chmod(dir, 0o711))
	return dir
}

// verifyJSON is verify with the report read.
func verifyJSON(t *testing.T, args ...string) verified {
	t.Helper()
	v := verify(t, append([]string{"--json"}, args...)...)
	v.parse(t)
	return v
}

func (v *verified) parse(t *testing.T) {
	t.Helper()
	if err := json.Unmarshal([]byte(v.stdout), v); err != nil {
		t.Fatalf("%v: code %d, stdout %q, stderr %q", err, v.code, v.stdout, v.stderr)
	}
}

// holds fails the test unless a claimed level holds. With becomesTheApp the image's run
// process becomes the app, so that a pod has no memory of its own.
func (v *verified) holds(t *testing.T, level int, becomesTheApp bool) {
	t.Helper()
	for _, c := range v.Checks {
		if c.Outcome == "failed" {
			t.Errorf("%s (section %s): %s", c.ID, c.Section, c.Words)
		}
	}
	if !v.Holds || v.Level != level || v.code != 0 {
		t.Errorf("level %d, claimed %d, holds %v, code %d: %s", v.Level, v.Claimed, v.Holds, v.code, v.stderr)
	}
	if v.Overhead == nil || v.Overhead.PodBytes <= 0 && !becomesTheApp {
		t.Errorf("the memory of a pod was not measured: %+v", v.Overhead)
	}
}

// bundledImages are the images of stage1/images, their levels, and further options of their
// verification.
var bundledImages = []struct {
	name  string
	level string
	args  []string
	// immutable is set if run becomes the only app, and users if apps can be in user
	// namespaces.
	immutable, users bool
}{
	{name: "native", level: "3", users: true},
	{name: "oci", level: "3", users: true},
	{name: "nspawn", level: "3"},
	{name: "fly", level: "3", args: flyAccepts(), immutable: true},
}

// flyAccepts returns the fields that fly must be allowed to ignore according to its README,
// because containers ask for isolation.
func flyAccepts() []string {
	return []string{"--accept", "appc", "--accept", "/process/capabilities", "--accept", "/linux/seccomp"}
}

func TestTheBundledImagesPassAtTheirLevels(t *testing.T) {
	for _, i := range bundledImages {
		t.Run(i.name, func(t *testing.T) {
			t.Parallel()
			v := verifyJSON(t, append(i.args, "--level", i.level, bundledImage(t, i.name))...)
			v.holds(t, int(i.level[0]-'0'), i.immutable)
			absent := 0
			for _, c := range v.Checks {
				if c.Outcome == "absent" {
					absent++
				}
			}
			if i.immutable != (absent > len(v.Checks)/3) {
				t.Errorf("of %d checks %d do not apply to it", len(v.Checks), absent)
			}
		})
	}
}

func TestUserNamespacesOfTheBundledImages(t *testing.T) {
	for _, i := range bundledImages {
		t.Run(i.name, func(t *testing.T) {
			t.Parallel()
			v := verifyJSON(t, append(i.args, "--run", "user/", bundledImage(t, i.name))...)
			if v.code != 0 || len(v.Checks) != 2 {
				t.Errorf("code %d: %+v", v.code, v.Checks)
			}
			for _, c := range v.Checks {
				if want := map[bool]string{true: "passed", false: "absent"}[i.users]; c.Outcome != want {
					t.Errorf("%s: %s, want %s: %s", c.ID, c.Outcome, want, c.Words)
				}
			}
		})
	}
}

func TestTheSkeletonsOfTheAuthorsGuidesPass(t *testing.T) {
	rktctl(t)
	for _, c := range []struct {
		example  conformance.Example
		level    string
		programs []string
	}{
		{conformance.Runc, "3", []string{"runc"}},
		{conformance.Bubblewrap, "1", []string{"bwrap", "jq", "busybox"}},
	} {
		t.Run(string(c.example), func(t *testing.T) {
			t.Parallel()
			for _, p := range c.programs {
				need(t, p)
			}
			dir := filepath.Join(t.TempDir(), "mine")
			if out, err := exec.Command(rktctl(t), "stage1", "init", "--example", string(c.example), dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, f := range conformance.Skeleton(c.example) {
				b, err := os.ReadFile(filepath.Join(dir, f.Path))
				if err != nil || string(b) != f.Text {
					t.Errorf("%s is not as the guide has it: %v", f.Path, err)
				}
			}
			v := verifyJSON(t, "--level", c.level, dir)
			v.holds(t, int(c.level[0]-'0'), false)
		})
	}
}

func TestAClaimThatIsTooHighDoesNotHold(t *testing.T) {
	t.Parallel()
	dir := broken{base: "native", manifest: func(annotations map[string]string) {
		delete(annotations, "enter")
	}}.image(t)
	v := verifyJSON(t, "--level", "2", dir)
	if v.code != 1 || v.Holds || v.Level != 1 || v.Claimed != 2 {
		t.Errorf("level %d, claimed %d, holds %v, code %d", v.Level, v.Claimed, v.Holds, v.code)
	}
	for _, c := range v.Checks {
		if c.Outcome == "failed" {
			t.Errorf("%s has failed, and nothing is wrong with what is there: %s", c.ID, c.Words)
		}
	}
	// Without a claimed level an absent feature is not an error.
	if v := verifyJSON(t, "--run", "enter/code", dir); v.code != 0 || v.Checks[0].Outcome != "absent" || v.Checks[0].Reason != "entrypoint" {
		t.Errorf("without a claim: code %d, %+v", v.code, v.Checks)
	}
}

func TestTheOutputIsTAP(t *testing.T) {
	t.Parallel()
	dir := broken{base: "native", entry: "app_start", body: `fail "the bearing has run dry
of grease"`}.image(t)
	v := verify(t, "--seed", "7", "--run", "exit/code", "--run", "run/ready", dir)
	for _, want := range []string{
		"TAP version 14\n1..2\n# seed 7: with --seed 7 the checks ask for the same values again\nok 1 - run/ready: ",
		"\nnot ok 2 - exit/code: ",
		"\n  ---\n  message: |\n    stage1 native: app/start: the bearing has run dry\n    of grease\n",
		"\n  section: docs/stage1-abi.md, section 6\n",
		"\n# stage1 native, " + dir,
	} {
		if !strings.Contains(v.stdout, want) {
			t.Errorf("%q is not in the output:\n%s", want, v.stdout)
		}
	}
	if v.code != 1 || v.stderr != "" {
		t.Errorf("code %d, stderr %q", v.code, v.stderr)
	}
}

func TestWhatIsNoImageIsToldSo(t *testing.T) {
	t.Parallel()
	v := verify(t, t.TempDir())
	if v.code != 1 || !strings.Contains(v.stdout, "\nBail out! ") || !strings.Contains(v.stderr, "manifest") {
		t.Errorf("code %d, stdout %q, stderr %q", v.code, v.stdout, v.stderr)
	}
}

func TestACheckThatHangsIsEndedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := broken{base: "native", entry: "app_add", body: `trap '' TERM; setsid sleep 1000; sleep 1000`}.image(t)
	v := verifyJSON(t, "--timeout", "3s", "--run", "exit/", dir)
	if v.code != 1 || len(v.Checks) != 3 {
		t.Fatalf("code %d: %+v", v.code, v.Checks)
	}
	for _, c := range v.Checks {
		if c.Outcome != "failed" || !strings.Contains(c.Words, "the check has not ended in its time") {
			t.Errorf("%+v", c)
		}
		// It is told where its processes are, and what they wait for.
		if !regexp.MustCompile(`(?m)^process \d+ of \d+ \(sleep 1000\) S; wchan \w+`).MatchString(c.Words) {
			t.Errorf("%s: %s", c.ID, c.Words)
		}
	}
	expectNoProcessOf(t, dir)
}

func TestAnInterruptedVerificationLeavesNothing(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			marker := filepath.Join(t.TempDir(), "added")
			dir := broken{base: "native", entry: "app_add", body: `: >` + marker + `; setsid sleep 1000 & sleep 1000`}.image(t)
			tmp := t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, rktctl(t), "stage1", "verify", "--run", "exit/", dir)
			cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			wait.Until(t, "app/add is called", func() bool { _, err := os.Stat(marker); return err == nil })
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(out.String(), "\nBail out! ") {
				t.Errorf("code %d, output %s", code, out.String())
			}
			if left, _ := os.ReadDir(tmp); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			expectNoProcessOf(t, tmp)
		})
	}
}

// rktctl stage1 verify IMAGE | head -n 1
func TestAReaderWhoLeavesEndsTheVerification(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	must(t, err)
	tmp := reachable(t)
	cmd := exec.CommandContext(t.Context(), rktctl(t), "stage1", "verify", bundledImage(t, "native"))
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &stderr
	must(t, cmd.Start())
	w.Close()
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	r.Close()
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(stderr.String(), "the output is not read any more") {
		t.Errorf("code %d, %s", code, stderr.String())
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// expectNoProcessOf looks for processes that have a directory in their command line or
// environment.
func expectNoProcessOf(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue
		}
		for _, name := range []string{"cmdline", "environ"} {
			if b, err := os.ReadFile(filepath.Join(f, name)); err == nil && bytes.Contains(b, []byte(dir)) {
				t.Errorf("process %s is left: %q", f, b)
			}
		}
	}
}
