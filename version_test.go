package shim_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// releaseVersion returns the version in the file VERSION.
func releaseVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("VERSION")
	if err != nil {
		t.Fatal(err)
	}
	version := strings.TrimSuffix(string(text), "\n")
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+$`).MatchString(version) {
		t.Fatalf("VERSION says %q", text)
	}
	return version
}

func TestTheVersionIsThatOfTheTagAndElseOfTheFile(t *testing.T) {
	version := releaseVersion(t)
	dir := t.TempDir()
	for _, file := range []string{"VERSION", "scripts/version"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, file), string(text), 0o755)
	}
	is := func() string {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "scripts/version"))
		cmd.Dir = "/"
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if got := is(); got != version {
		t.Errorf("a tarball is %s, want %s", got, version)
	}
	git := func(args ...string) {
		in(t, dir, append([]string{"git", "-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
	}
	git("init", "--quiet")
	git("add", "--all")
	git("commit", "--quiet", "--message", "all")
	development := regexp.MustCompile(`^` + regexp.QuoteMeta(version) + `-dev\.g[0-9a-f]{12}$`)
	if got := is(); !development.MatchString(got) {
		t.Errorf("a checkout is %s", got)
	}
	git("tag", "v7.8.9")
	if got := is(); got != "v7.8.9" {
		t.Errorf("a checkout with a tag is %s", got)
	}
	writeFile(t, filepath.Join(dir, "VERSION"), version+"\n\n", 0o755)
	if got := is(); got != "v7.8.9-dirty" {
		t.Errorf("a changed checkout with a tag is %s", got)
	}
}

// Documents name the version where a reader copies it. The file VERSION decides.
func TestDocumentsNameTheVersionOfTheFile(t *testing.T) {
	version := releaseVersion(t)
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## \[(\d.*?)\]`).FindSubmatch(changelog)
	if newest == nil || "v"+string(newest[1]) != version {
		t.Errorf("the newest release of CHANGELOG.md is %q, VERSION says %s", newest, version)
	}
	ours := regexp.MustCompile(`containerd-shim-rkt[-_]v?(\d+\.\d+\.\d+)|(?i:version is |containerd-shim-rkt-node:|newTag: |ARG VERSION=)v?(\d+\.\d+\.\d+)`)
	named := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "contrib/*/*", "contrib/*/*/*"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // a directory
			}
			for _, m := range ours.FindAllSubmatch(text, -1) {
				named++
				if got := "v" + string(m[1]) + string(m[2]); got != version {
					t.Errorf("%s: %q is not of version %s", file, m[0], version)
				}
			}
		}
	}
	if named == 0 {
		t.Error("no document names a version: the pattern is out of date")
	}
}

// The matrix of support names the target that runs the tests, for each row that says "tested".
func TestWhatIsTestedNamesItsTarget(t *testing.T) {
	text, err := os.ReadFile("docs/support.md")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile("^`make (test-[a-z-]+)[^`]*`$")
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || strings.TrimSpace(cells[0]) == "" || strings.HasPrefix(cells[0], "---") {
			continue
		}
		rows++
		is, by := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])
		target := command.FindStringSubmatch(by)
		switch {
		case is == "tested" && target == nil:
			t.Errorf("%s: tested by %q", cells[0], by)
		case is == "tested" && !strings.Contains(string(makefile), "\n"+target[1]+":"):
			t.Errorf("%s: the Makefile has no %s", cells[0], target[1])
		case is != "tested" && (by != "" || is != "expected" && is != "not"):
			t.Errorf("%s is %q, by %q", cells[0], is, by)
		}
	}
	if rows < 20 {
		t.Errorf("the matrix has %d rows", rows)
	}
}
