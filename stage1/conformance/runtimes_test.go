package conformance_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ociWith makes an image of the stage1 oci that calls another OCI runtime, as described in
// its README.
func ociWith(t *testing.T, line string) string {
	t.Helper()
	rktctl(t)
	dir := filepath.Join(t.TempDir(), "image")
	if out, err := exec.Command("cp", "-a", filepath.Join(built.dir, "stage1/oci"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(t, os.WriteFile(filepath.Join(dir, "rootfs/runtimes"), []byte(line+"\n"), 0o644))
	return dir
}

// crun sets the size of an exec's terminal after the program has started. On a busy machine
// the program may read the size before that. For a weight of input and output, crun 1.8 writes only
// the file of CFQ, which Linux 5.0 has removed, and so fails app/add with version 1 of cgroups.
func TestOCIPassesWithCrunToo(t *testing.T) {
	t.Parallel()
	need(t, "crun")
	passed := 0
	for _, c := range verifyJSON(t, "--level", "3", ociWith(t, "crun")).Checks {
		switch {
		case c.Outcome == "passed":
			passed++
		case c.Outcome == "failed" && c.ID != "terminal/exec" && c.ID != "limit/io-weight":
			t.Errorf("%s (section %s): %s", c.ID, c.Section, c.Words)
		}
	}
	if passed < 70 {
		t.Errorf("only %d checks have passed", passed)
	}
}

// The processes of runsc on the host are not those of the container, so oci with runsc reaches
// no level. The README of oci lists the checks that fail, and no other check may fail.
func TestOCIWithRunscFailsWhatItsReadmeNames(t *testing.T) {
	t.Parallel()
	path := os.Getenv("RKT_TEST_RUNSC")
	if path == "" {
		t.Skip("needs RKT_TEST_RUNSC, the path of a runsc: make test-runsc builds one")
	}
	readme, err := os.ReadFile("../images/oci/README.md")
	must(t, err)
	_, section, found := strings.Cut(string(readme), "\n## gVisor\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var want, got []string
	for _, m := range regexp.MustCompile("`([a-z-]+/[a-z-]+)`").FindAllStringSubmatch(section, -1) {
		want = append(want, m[1])
	}
	for _, c := range verifyJSON(t, ociWith(t, path+" --platform=systrap --network=host")).Checks {
		if c.Outcome == "failed" && !strings.HasPrefix(c.ID, "checkpoint/") { // these depend on criu
			got = append(got, c.ID)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !found || len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("these fail:\n%v\nand the README names:\n%v", got, want)
	}
}
