package shim_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// A node's configuration pins digests of stage1s, and a build from a tarball has to match
// them. Versions are arguments of the build, because a tarball has no history.
func TestBuildsOfTheSameFilesAreTheSame(t *testing.T) {
	if out, err := exec.Command("git", "rev-parse", "--git-dir").CombinedOutput(); err != nil {
		t.Skipf("the list of files comes from git: %s", out)
	}
	tarball := filepath.Join(t.TempDir(), "tarball")
	copyTree(t, tarball, "077")
	checkout := filepath.Join(t.TempDir(), "a", "longer path", "checkout")
	copyTree(t, checkout, "022")
	in(t, checkout, "git", "init", "--quiet")
	in(t, checkout, "git", "add", "--all")
	in(t, checkout, "git", "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "--quiet", "--message", "all")

	var built [2]map[string]string
	for i, dir := range []string{tarball, checkout} {
		in(t, dir, "make", "build", "VERSION=v1", "REVISION=r1")
		built[i] = products(t, filepath.Join(dir, "bin"))
	}
	for name, most := range mostBytes {
		content, err := os.ReadFile(filepath.Join(tarball, "bin", name))
		if err != nil {
			t.Fatal(err)
		}
		if len(content) > most {
			t.Errorf("%s has %d bytes, more than %d", name, len(content), most)
		}
	}
	if len(built[0]) < 6 || len(built[0]) != len(built[1]) {
		t.Errorf("built %v and %v", built[0], built[1])
	}
	for name, digest := range built[0] {
		if digest != built[1][name] {
			t.Errorf("%s differs: %.20s in a tarball, %.20s in a checkout", name, digest, built[1][name])
		}
	}
}

// mostBytes are the largest sizes of the programs of which a pod has processes. What a program links
// is read into memory, and makes each of its executions slower.
var mostBytes = map[string]int{
	"containerd-shim-rkt-v1":      2_800_000,
	early.ServerProgram:           11_100_000,
	"stage1/native/rootfs/native": 4_100_000,
}

// copyTree copies the files that git knows, as they are now.
func copyTree(t *testing.T, dir, umask string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	in(t, ".", "sh", "-c", `umask "$1"; git ls-files -z | tar --null --files-from - --create | tar --extract --no-same-permissions --touch --directory "$2"`, "sh", umask, dir)
}

// in executes a program in a directory.
func in(t *testing.T, dir string, argv ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
	}
}

// products returns the digests of the programs and images of a build.
func products(t *testing.T, bin string) map[string]string {
	t.Helper()
	digests := map[string]string{}
	for _, program := range []string{"containerd-shim-rkt-v1", early.ServerProgram, "rktctl"} {
		content, err := os.ReadFile(filepath.Join(bin, program))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte("vcs.revision")) {
			t.Errorf("%s names the commit of its checkout", program)
		}
		digests[program] = fmt.Sprintf("%x", sha256.Sum256(content))
	}
	images, err := filepath.Glob(filepath.Join(bin, "stage1", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range images {
		i, err := image.ACIs{}.Inspect(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		digests[filepath.Base(dir)] = i.Digest()
	}
	return digests
}
