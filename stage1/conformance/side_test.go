package conformance_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/conformance"
)

func TestChecksRunSideBySideAndAreToldInTheirOrder(t *testing.T) {
	t.Parallel()
	// Every call of run waits until another one has begun.
	meet := t.TempDir()
	dir := broken{entry: "run", body: `: >` + meet + `/$$; while [ "$(ls ` + meet + ` | wc -l)" -lt 2 ]; do sleep 0.1; done`}.image(t)
	v := verifyJSON(t, "--run", "run/", "--run", "stop/", dir)
	var got, want []string
	for _, c := range v.Checks {
		got = append(got, c.ID)
	}
	for _, c := range conformance.Select(conformance.Checks(), "run/", "stop/") {
		want = append(want, c.ID)
	}
	if v.code != 0 || !slices.Equal(got, want) {
		t.Errorf("code %d: the checks are %q, want %q: %+v", v.code, got, want, v.Checks)
	}
}

func TestAKilledProcessOfChecksEndsTheVerificationAndLeavesNothing(t *testing.T) {
	t.Parallel()
	marker := filepath.Join(t.TempDir(), "parent")
	dir := broken{entry: "app_add", body: `cut -d' ' -f4 "/proc/$$/stat" >` + marker + `.new; mv ` + marker + `.new ` + marker + `; sleep 1000`}.image(t)
	tmp := reachable(t)
	cmd := exec.CommandContext(t.Context(), rktctl(t), "stage1", "verify", "--run", "exit/code", dir)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	wait.Until(t, "app/add is called", func() bool { _, err := os.Stat(marker); return err == nil })
	text, err := os.ReadFile(marker)
	must(t, err)
	must(t, exec.Command("kill", "-KILL", strings.TrimSpace(string(text))).Run())
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(out.String(), "\nBail out! ") {
		t.Errorf("code %d, output %s", code, out.String())
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	expectNoProcessOf(t, tmp)
}

// On a busy machine all checks can be over before the last worker has loaded the image.
func TestAProcessOfChecksThatGetsNoneEndsWithoutAnError(t *testing.T) {
	t.Parallel()
	tmp := reachable(t)
	config, err := json.Marshal(conformance.KitConfig{Image: broken{entry: "run", body: "exit 1"}.image(t), Dir: tmp})
	must(t, err)
	cmd := exec.CommandContext(t.Context(), rktctl(t), "checks")
	cmd.Env = append(os.Environ(), "RKT_STAGE1_VERIFY_WORKER=1")
	cmd.Stdin = bytes.NewReader(config)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v, output %s", err, out)
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestKeepKeepsTheDirectoryOfAFailedCheckAndNamesIt(t *testing.T) {
	t.Parallel()
	dir := broken{entry: "app_start", body: `echo seen >stage1/rootfs/rkt/console; fail "the bearing has run dry"`}.image(t)
	tmp := reachable(t)
	cmd := exec.CommandContext(t.Context(), rktctl(t), "stage1", "verify", "--json", "--keep", "--run", "exit/code", "--run", "run/ready", dir)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	text, _ := cmd.Output()
	v := verified{stdout: string(text)}
	v.parse(t)
	for _, c := range v.Checks {
		if c.ID == "run/ready" {
			if c.Outcome != "passed" || c.Kept != "" {
				t.Errorf("%+v", c)
			}
			continue
		}
		for name, want := range map[string]string{"journal": "the bearing has run dry", "stage1/rootfs/rkt/console": "seen"} {
			files, err := filepath.Glob(filepath.Join(c.Kept, "pods/*", name))
			if err != nil || len(files) != 1 {
				t.Fatalf("%s: the %s is not in %q", c.ID, name, c.Kept)
			}
			if b, err := os.ReadFile(files[0]); err != nil || !strings.Contains(string(b), want) {
				t.Errorf("%s: %v: %s", files[0], err, b)
			}
		}
		if left, _ := filepath.Glob(tmp + "/*/*"); !slices.Equal(left, []string{c.Kept}) {
			t.Errorf("%q is left, want %q alone", left, c.Kept)
		}
	}
}

func TestKeepLeavesNothingOfChecksThatPass(t *testing.T) {
	t.Parallel()
	if v := verify(t, "--keep", "--run", "run/ready", bundledImage(t, "native")); v.code != 0 {
		t.Errorf("code %d: %s", v.code, v.stdout)
	}
}

// rktctl stage1 verify … 12<&0
func TestEntrypointsHaveNoDescriptorOfTheCallerOfTheKit(t *testing.T) {
	t.Parallel()
	dir := broken{entry: "app_add", body: `[ ! -e "/proc/$$/fd/12" ] || fail "descriptor 12 is open"`}.image(t)
	tmp := reachable(t)
	cmd := exec.CommandContext(t.Context(), rktctl(t), "stage1", "verify", "--run", "add/descriptors", "--run", "exit/code", dir)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	for range 10 {
		cmd.ExtraFiles = append(cmd.ExtraFiles, r)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
