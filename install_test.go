package shim_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/doctor"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
)

// A shim that records how it was called, and whose `delete` removes the pod of its id. Like the shim
// it finds its server program beside it, or in libexec.
const recordingShim = `#!/bin/sh
dir=${0%/*}
[ -x "$dir/` + early.ServerProgram + `" ] || [ -x "${dir%/*}/libexec/containerd-shim-rkt/` + early.ServerProgram + `" ] || exit 99
echo "${0##*/} $*" >>"$RKT_DATA_DIR/calls"
[ "$3" != delete ] || rm -r "$RKT_DATA_DIR/pods/run/$2" rkt.json
echo answer
exit "${RKT_TEST_CODE:-0}"
`

// builtFiles makes a directory like that of make build.
func builtFiles(t *testing.T, version string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "bin")
	for path, mode := range map[string]os.FileMode{
		"containerd-shim-rkt-v1":          0o755,
		early.ServerProgram:               0o755,
		"rktctl":                          0o755,
		"share/man/man1/rktctl.1":         0o600, // the umask of a build makes no difference
		"share/completions/rktctl":        0o644,
		"share/completions/_rktctl":       0o644,
		"share/completions/rktctl.fish":   0o644,
		"stage1/native/manifest":          0o644,
		"stage1/native/rootfs/native":     0o711,
		"stage1/native/rootfs/" + version: 0o644,
	} {
		writeFile(t, filepath.Join(bin, path), recordingShim+"# "+version+"\n", mode)
	}
	if err := os.Symlink("native", filepath.Join(bin, "stage1/native/rootfs/run")); err != nil {
		t.Fatal(err)
	}
	return bin
}

func writeFile(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// installation is a prefix, with a data directory of its own.
type installation struct{ prefix, data string }

func newInstallation(t *testing.T) *installation {
	t.Helper()
	dir := t.TempDir()
	i := &installation{filepath.Join(dir, "usr/local"), filepath.Join(dir, "rkt")}
	// A prefix has files of others.
	writeFile(t, filepath.Join(i.prefix, "bin/other"), "", 0o755)
	writeFile(t, filepath.Join(i.prefix, "share/other/file"), "", 0o644)
	shared := []string{"libexec", "share/bash-completion/completions", "share/fish/vendor_completions.d", "share/man/man1", "share/zsh/site-functions"}
	for _, d := range append(shared, "../../rkt") {
		if err := os.MkdirAll(filepath.Join(i.prefix, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return i
}

// run executes a program with the installation's data directory and returns its exit code.
func (i *installation) run(t *testing.T, argv ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "RKT_DATA_DIR="+i.data)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatalf("%q: %v", argv, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func (i *installation) must(t *testing.T, argv ...string) string {
	t.Helper()
	out, code := i.run(t, argv...)
	if code != 0 {
		t.Fatalf("%q: exit code %d: %s", argv, code, out)
	}
	return out
}

// files describes everything below the prefix as the inventory does. Files may be removed meanwhile.
func (i *installation) files(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(i.prefix, func(path string, d fs.DirEntry, err error) error {
		entry := ""
		if err == nil {
			entry, err = describeEntry(path, d)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			return nil
		case err != nil:
			return err
		}
		name, _ := filepath.Rel(i.prefix, path)
		all[name] = entry
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func describeEntry(path string, d fs.DirEntry) (string, error) {
	info, err := d.Info()
	switch {
	case err != nil:
		return "", err
	case d.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return "- link " + target, err
	case d.IsDir():
		return fmt.Sprintf("0%o dir -", info.Mode().Perm()), nil
	}
	content, err := os.ReadFile(path)
	return fmt.Sprintf("0%o file %x", info.Mode().Perm(), sha256.Sum256(content)), err
}

// differs reports an entry that only one of two listings has, or that they describe differently.
func differs(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, is := range got {
		if want[name] != is {
			t.Errorf("%s is %q, want %q", name, is, want[name])
		}
	}
	for name, is := range want {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing, want %q", name, is)
		}
	}
}

const inventoryPath = "share/containerd-shim-rkt/inventory"

func TestWhatIsInstalledIsExactlyTheInventory(t *testing.T) {
	i := newInstallation(t)
	before := i.files(t)
	i.must(t, "sh", "-c", `umask 077; exec scripts/install "$@"`, "sh", builtFiles(t, "v1"), i.prefix)
	installed := i.files(t)

	inventory, err := os.ReadFile(filepath.Join(i.prefix, inventoryPath))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{inventoryPath: installed[inventoryPath]}
	for name, is := range before {
		want[name] = is
	}
	var paths []string
	for line := range strings.Lines(string(inventory)) {
		path, is, _ := strings.Cut(strings.TrimSpace(line), " ")
		if dir := filepath.Dir(path); strings.HasPrefix(installed[dir], "0755 dir") && before[dir] == "" && !slices.Contains(paths, dir) {
			t.Errorf("%s precedes its directory", path)
		}
		paths = append(paths, path)
		want[path] = is
	}
	differs(t, installed, want)
	for path, is := range map[string]string{
		"bin/containerd-shim-rkt-oci-v1":                       "- link containerd-shim-rkt-v1",
		"libexec/containerd-shim-rkt/stage1/native/rootfs/run": "- link native",
		"share/containerd-shim-rkt/contrib/containerd/2.x":     "0755 dir -",
		"libexec/containerd-shim-rkt/stage1/native":            "0755 dir -",
		"share/man/man1":            "0755 dir -",
		"share/containerd-shim-rkt": "0755 dir -",
	} {
		if installed[path] != is {
			t.Errorf("%s is %q, want %q", path, installed[path], is)
		}
	}
	if is := installed["libexec/containerd-shim-rkt/stage1/native/rootfs/native"]; !strings.HasPrefix(is, "0711 file ") {
		t.Errorf("a program of an image is %q: only root may read it", is)
	}

	i.must(t, "scripts/uninstall", i.prefix)
	differs(t, i.files(t), before)
	if out, code := i.run(t, "scripts/uninstall", i.prefix); code != 1 || !strings.Contains(out, "nothing is installed below "+i.prefix) {
		t.Errorf("removed twice: %d, %s", code, out)
	}
}

// make kvm is not a part of make build.
func TestTheFilesOfMachinesAreInstalledIfTheyAreBuilt(t *testing.T) {
	i := newInstallation(t)
	bin := builtFiles(t, "v1")
	const kernel, image, shim = "libexec/containerd-shim-rkt/kvm/vmlinux", "libexec/containerd-shim-rkt/stage1/kvm/manifest", "bin/containerd-shim-rkt-kvm-v1"
	i.must(t, "scripts/install", bin, i.prefix)
	if files := i.files(t); files[filepath.Dir(kernel)] != "" || files[shim] != "- link containerd-shim-rkt-v1" {
		t.Errorf("%q and %q", files[filepath.Dir(kernel)], files[shim])
	}
	writeFile(t, filepath.Join(bin, "kvm/vmlinux"), "kernel", 0o644)
	i.must(t, "scripts/install", bin, i.prefix)
	if files := i.files(t); !strings.HasPrefix(files[kernel], "0644 file ") {
		t.Errorf("%q", files[kernel])
	}
	if inventory := i.must(t, "scripts/inventory", bin, "package"); strings.Contains(inventory, filepath.Dir(kernel)) || !strings.Contains(inventory, shim) {
		t.Errorf("the package has the files: %s", inventory)
	}
	writeFile(t, filepath.Join(bin, "stage1/kvm/manifest"), "{}", 0o644)
	of := i.must(t, "scripts/inventory", bin, "kvm")
	for _, path := range []string{kernel, image} {
		if !strings.Contains(of, path+" 0644 file ") {
			t.Errorf("the package of machines has no %s: %s", path, of)
		}
	}
	if strings.Contains(of, "stage1/native") || strings.HasPrefix(of, "bin/") {
		t.Errorf("the package of machines has files of the other: %s", of)
	}
}

func TestAnUpgradeRemovesFilesThatAreNoLongerInstalled(t *testing.T) {
	i := newInstallation(t)
	i.must(t, "scripts/install", builtFiles(t, "v1"), i.prefix)
	own := filepath.Join(i.prefix, "libexec/containerd-shim-rkt/stage1/mine/manifest")
	writeFile(t, own, "of the operator", 0o644)
	i.must(t, "scripts/install", builtFiles(t, "v2"), i.prefix)
	files := i.files(t)
	const rootfs = "libexec/containerd-shim-rkt/stage1/native/rootfs/"
	if files[rootfs+"v2"] == "" || files[rootfs+"v1"] != "" {
		t.Errorf("%q and %q", files[rootfs+"v2"], files[rootfs+"v1"])
	}
	i.must(t, "scripts/uninstall", i.prefix)
	if _, err := os.Stat(own); err != nil {
		t.Errorf("the operator's own image: %v", err)
	}
}

// A call of the shim never finds a server program missing that an upgrade has not put in place yet.
func TestTheServerProgramIsInstalledBeforeTheShim(t *testing.T) {
	i := newInstallation(t)
	inventory := i.must(t, "scripts/inventory", builtFiles(t, "v1"), "package")
	server, shim := strings.Index(inventory, "libexec/containerd-shim-rkt/"+early.ServerProgram+" "), strings.Index(inventory, "bin/containerd-shim-rkt-v1 ")
	if server < 0 || shim < server {
		t.Errorf("the inventory has the server program at %d, and the shim at %d", server, shim)
	}
}

// containerd executes `delete` after a pod has ended, at the path at which it found the shim.
func TestARemovedInstallationLeavesTheShimToLivingPods(t *testing.T) {
	i := newInstallation(t)
	before := i.files(t)
	i.must(t, "scripts/install", builtFiles(t, "v1"), i.prefix)
	pod := func(id string) string { return filepath.Join(i.data, "pods/run", id) }
	for _, id := range []string{"a", "b"} {
		if err := os.MkdirAll(pod(id), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	own := filepath.Join(i.prefix, "bin/containerd-shim-rkt-mine-v1") // as docs/stage1-authors.md says
	if err := os.Symlink(filepath.Join(i.prefix, "bin/containerd-shim-rkt-v1"), own); err != nil {
		t.Fatal(err)
	}
	if out := i.must(t, "scripts/uninstall", i.prefix); !strings.Contains(out, "stays until the last of them is deleted") {
		t.Errorf("it says %q", out)
	}
	if files := i.files(t); files["bin/rktctl"] != "" || files["libexec/containerd-shim-rkt/stage1"] != "" || files[inventoryPath] != "" {
		t.Errorf("the rest of the installation is still there: %v", files)
	}
	// containerd executes the shim in the directory of a bundle.
	bundles := filepath.Join(t.TempDir(), "task/namespace")
	for _, id := range []string{"a", "b", "late"} {
		writeFile(t, filepath.Join(bundles, id, "rkt.json"), "{}", 0o640)
	}
	for n, call := range []string{"containerd-shim-rkt-v1 -id a start", "containerd-shim-rkt-oci-v1 -id a delete", "containerd-shim-rkt-mine-v1 -id b delete"} {
		name, rest, _ := strings.Cut(call, " ")
		if _, err := os.Stat(filepath.Join(i.prefix, "bin", name)); err != nil {
			t.Fatalf("before %s: %v", call, err)
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(i.prefix, "bin", name), strings.Fields(rest)...)
		cmd.Dir = filepath.Join(bundles, strings.Fields(rest)[1])
		cmd.Env = append(os.Environ(), "PWD="+cmd.Dir, "RKT_DATA_DIR="+i.data, fmt.Sprintf("RKT_TEST_CODE=%d", n))
		out, _ := cmd.Output()
		if string(out) != "answer\n" || cmd.ProcessState.ExitCode() != n {
			t.Errorf("%s: %q, exit code %d", call, out, cmd.ProcessState.ExitCode())
		}
		calls, _ := os.ReadFile(filepath.Join(i.data, "calls"))
		if !strings.HasSuffix(string(calls), call+"\n") {
			t.Errorf("the shim was called as %s", calls)
		}
	}
	_ = os.Remove(own)
	// Another delete is still running, or goes on in another process.
	if _, err := os.Stat(filepath.Join(i.prefix, "bin/containerd-shim-rkt-v1")); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(filepath.Join(bundles, "late")); err != nil {
		t.Fatal(err)
	}
	wait.Observe(t, "the program goes after the last delete", func() (bool, string) {
		files := i.files(t)
		return len(files) == len(before), fmt.Sprint(len(files), " files, there were ", len(before))
	})
	differs(t, i.files(t), before)
}

func TestAnInstallationAfterARemovalKeepsNothing(t *testing.T) {
	i := newInstallation(t)
	i.must(t, "scripts/install", builtFiles(t, "v1"), i.prefix)
	fresh := i.files(t)
	if err := os.MkdirAll(filepath.Join(i.data, "pods/run/a"), 0o750); err != nil {
		t.Fatal(err)
	}
	retire := filepath.Join(i.prefix, "libexec/containerd-shim-rkt/retire")
	for range 2 { // dpkg may call it again
		i.must(t, retire)
	}
	i.must(t, retire, "undo") // the removal was given up
	differs(t, i.files(t), fresh)

	i.must(t, "scripts/uninstall", i.prefix)
	i.must(t, "scripts/install", builtFiles(t, "v1"), i.prefix)
	differs(t, i.files(t), fresh)
}

// A full disk, for example.
func TestAnInstallationThatFailsSaysSoAndLeavesTheOldOne(t *testing.T) {
	i := newInstallation(t)
	bin := builtFiles(t, "v1")
	i.must(t, "scripts/install", bin, i.prefix)
	before := i.files(t)
	out, code := i.run(t, "sh", "-c", `{ echo "bin/rktctl 0755 file - $0/rktctl"; echo "bin/other 0755 file - $0/nosuch"; } | scripts/place "$1"`, bin, i.prefix)
	if code == 0 || !strings.Contains(out, "nosuch") {
		t.Errorf("it has ended with %d: %s", code, out)
	}
	differs(t, i.files(t), before)
}

func TestNothingIsRemovedIfItIsNotKnownWhetherPodsLive(t *testing.T) {
	i := newInstallation(t)
	i.must(t, "scripts/install", builtFiles(t, "v1"), i.prefix)
	writeFile(t, filepath.Join(i.prefix, "libexec/containerd-shim-rkt/retire"), "#!/bin/sh\nexit 2\n", 0o755)
	before := i.files(t)
	if out, code := i.run(t, "scripts/uninstall", i.prefix); code != 1 || !strings.Contains(out, "nothing is removed") {
		t.Errorf("it has ended with %d: %s", code, out)
	}
	differs(t, i.files(t), before)
}

func TestARemovalThatWasInterruptedIsRepeated(t *testing.T) {
	const own = "libexec/containerd-shim-rkt"
	for _, scripts := range []bool{true, false} { // whether the installation still has its own scripts
		i := newInstallation(t)
		i.must(t, "scripts/install", builtFiles(t, "v1"), i.prefix)
		if err := os.MkdirAll(filepath.Join(i.data, "pods/run/a"), 0o750); err != nil {
			t.Fatal(err)
		}
		i.must(t, filepath.Join(i.prefix, own, "retire"))
		again := filepath.Join(i.prefix, own, "uninstall")
		if !scripts {
			again = "scripts/uninstall"
			for _, name := range []string{"retire", "uninstall"} {
				if err := os.Remove(filepath.Join(i.prefix, own, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := os.Remove(filepath.Join(i.prefix, "bin/rktctl")); err != nil {
			t.Fatal(err)
		}
		i.must(t, again, i.prefix)
		files := i.files(t)
		if files["bin/containerd-shim-rkt-v1"] == "" || files[own+"/kept/retire"] == "" || files[own+"/retire"] != "" || files[inventoryPath] != "" {
			t.Errorf("with its scripts %t: %v", scripts, files)
		}
	}
}

// With another data directory than the default, the servers tell that pods live.
func TestAServerOfAReplacedProgramIsALivingPod(t *testing.T) {
	for program, path := range map[string]string{
		early.ServerProgram:      "libexec/containerd-shim-rkt/" + early.ServerProgram,
		"containerd-shim-rkt-v1": "bin/containerd-shim-rkt-v1", // was the server before there was another program
	} {
		t.Run(program, func(t *testing.T) { replacedProgram(t, program, path) })
	}
}

func replacedProgram(t *testing.T, program, path string) {
	i := newInstallation(t)
	bin := builtFiles(t, "v1")
	sleep, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(bin, program), string(sleep), 0o755)
	i.must(t, "scripts/install", bin, i.prefix)
	server := exec.CommandContext(t.Context(), filepath.Join(i.prefix, path), "1000")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	i.must(t, "scripts/install", bin, i.prefix)
	retire := filepath.Join(i.prefix, "libexec/containerd-shim-rkt/retire")
	i.must(t, retire)
	i.must(t, retire, "undo")
	_ = server.Process.Kill()
	_ = server.Wait()
	if out, code := i.run(t, retire); code != 3 {
		t.Errorf("no server runs, and it answers %d: %s", code, out)
	}
}

// rktctl doctor compares an installation with the inventory that is installed with it.
func TestDoctorKnowsTheFilesOfAnInstallation(t *testing.T) {
	i := newInstallation(t)
	i.must(t, "scripts/install", builtFiles(t, "v1"), i.prefix)
	findings := func() (found []doctor.Finding) {
		for _, f := range doctor.Examine(t.Context(), doctor.Node{
			Proc: t.TempDir(), DataDir: i.data, Containerd: filepath.Join(i.data, "absent.toml"),
			Getenv: func(name string) string { return map[string]string{"PATH": filepath.Join(i.prefix, "bin")}[name] },
		}) {
			if f.Area == "installation" && strings.Contains(f.Text, "files below") {
				found = append(found, f)
			}
		}
		return found
	}
	if got := findings(); len(got) != 1 || got[0].Severity != doctor.OK {
		t.Errorf("%+v", got)
	}
	writeFile(t, filepath.Join(i.prefix, "libexec/containerd-shim-rkt/stage1/native/rootfs/native"), "changed", 0o711)
	if got := findings(); len(got) != 1 || got[0].Severity != doctor.Error || !strings.Contains(got[0].Text, "native/rootfs/native was changed") {
		t.Errorf("%+v", got)
	}
}
