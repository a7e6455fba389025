package rktabi

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnlyAReleaseOfSystemdThatKnowsStreamsByNameOpensThem(t *testing.T) {
	for version, want := range map[string]bool{"v252\n": true, "v236": true, "v235": false, "v233\n": false, "master": false, "": false} {
		if got := knowsNames(version); got != want {
			t.Errorf("%q: %t, want %t", version, got, want)
		}
	}
}

func TestSystemdNspawnIsToldWhatRktDoesNotSay(t *testing.T) { // section 12
	script := filepath.Join(t.TempDir(), "pod", toolsDir, "systemd-nspawn")
	covered := filepath.Join(t.TempDir(), "covered")
	if err := putScript(script, "'/bin/echo'", "touch "+covered); err != nil {
		t.Fatal(err)
	}
	defer children.Expect()() // the command's process is not to be reaped as an orphan
	out, err := exec.Command(script, "--boot", "--register=false", "a b").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	register, boot := "--register=false", ""
	if !hasBus() {
		register = "--register=no --keep-unit"
	}
	if !onlyV2() {
		boot = " systemd.unified_cgroup_hierarchy=no systemd.legacy_systemd_cgroup_controller=yes"
	}
	if got, want := strings.TrimSpace(string(out)), "--boot "+register+" a b"+boot; got != want {
		t.Errorf("it is called with %q, want %q", got, want)
	}
	if _, err := os.Lstat(covered); err != nil {
		t.Errorf("what comes before it: %v", err)
	}
}

func TestTheLoaderOfAProgramIsTheOneThatItNames(t *testing.T) {
	program, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip(err)
	}
	if f, err := elf.Open(program); err != nil {
		t.Skipf("%s is no program of its own: %v", program, err)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	loader, err := loaderOf(program)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(loader); err != nil || !st.Mode().IsRegular() {
		t.Errorf("the loader of %s is %q: %v", program, loader, err)
	}
	if _, err := loaderOf("systemd_test.go"); err == nil {
		t.Error("a text names a loader")
	}
}
