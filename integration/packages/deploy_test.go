package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// installer runs contrib/deploy/node as the DaemonSets do, for a node whose root is a directory.
type installer struct {
	t    *testing.T
	dir  string
	root string
	env  []string
}

func newInstaller(t *testing.T) *installer {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: its pods are real")
	}
	if os.Getenv("RKT_TEST_GUEST") != "" {
		t.Skip("needs the repository's scripts")
	}
	dir := shortDir(t)
	i := &installer{t: t, dir: dir, root: filepath.Join(dir, "root")}
	i.env = []string{"HOST=" + i.root, "PAYLOAD=" + filepath.Join(dir, "payload"), "ENTER=none", "ONCE=1", "DONE=" + filepath.Join(dir, "done"),
		"RESTART=touch " + i.marker(), "RKT_DATA_DIR=" + i.data()}
	i.configure(`imports = ["/etc/containerd/conf.d/*.toml"]`)
	return i
}

func (i *installer) configure(text string) {
	i.t.Helper()
	path := filepath.Join(i.root, "etc/containerd/config.toml")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		i.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("version = 3\n"+text+"\n"), 0o644); err != nil {
		i.t.Fatal(err)
	}
}

func (i *installer) data() string    { return filepath.Join(i.dir, "rkt") }
func (i *installer) marker() string  { return filepath.Join(i.dir, "restarted") }
func (i *installer) dropIns() string { return filepath.Join(i.root, "etc/containerd/conf.d") }
func (i *installer) files() []string {
	return slices.DeleteFunc(paths(i.t, []string{i.root}), func(path string) bool {
		info, err := os.Lstat(path)
		return err == nil && info.IsDir() // directories that others share may stay
	})
}

// payload makes the contents of the image: a release's tarball, unpacked. The files of stage1s
// have another content in each version.
func (i *installer) payload(version string) {
	i.t.Helper()
	bin, err := binaries.Built("")
	if err != nil {
		i.t.Fatal(err)
	}
	built, payload := filepath.Join(i.dir, "built"), filepath.Join(i.dir, "payload")
	for _, dir := range []string{built, payload} {
		if err := os.RemoveAll(dir); err != nil {
			i.t.Fatal(err)
		}
	}
	run(i.t, nil, "cp", "-a", bin, built)
	if err := os.WriteFile(filepath.Join(built, "stage1/native/rootfs", version), nil, 0o644); err != nil {
		i.t.Fatal(err)
	}
	run(i.t, nil, "sh", "-ec", `../../scripts/inventory "$1" package >"$1/inventory" && ../../scripts/place "$2" <"$1/inventory"`, "sh", built, payload)
}

// node runs the script and reports whether it has restarted containerd.
func (i *installer) node(verb string) (out string, restarted bool) {
	i.t.Helper()
	out = run(i.t, i.env, "../../contrib/deploy/node", verb)
	return out, os.Remove(i.marker()) == nil
}

func (i *installer) installed(path string) bool {
	_, err := os.Stat(filepath.Join(i.root, "usr/local", path))
	return err == nil
}

func TestANodeIsInstalledUpgradedAndCleanedUnderAPod(t *testing.T) {
	i := newInstaller(t)
	before := i.files()
	i.payload("v1")
	if _, restarted := i.node("install"); !restarted {
		t.Error("the drop-ins are new, and containerd was not restarted")
	}
	n := startNode(t, options{dir: filepath.Join(i.dir, "d"), bin: filepath.Join(i.root, "usr/local/bin"), dropIns: i.dropIns(), env: []string{"RKT_DATA_DIR=" + i.data()}})
	p, container := n.must("rkt")
	n.works("installed", container)
	shared, other := n.must("rkt-sandbox")
	n.works("without a pause container", other)

	if _, restarted := i.node("install"); restarted {
		t.Error("nothing has changed, and containerd was restarted")
	}
	i.payload("v2")
	if _, restarted := i.node("install"); restarted {
		t.Error("no drop-in has changed, and containerd was restarted")
	}
	const news = "libexec/containerd-shim-rkt/stage1/native/rootfs/"
	if i.installed(news+"v1") || !i.installed(news+"v2") {
		t.Error("the files are not those of the newer version")
	}
	n.works("upgraded", container)
	n.works("a new container", p.start())
	next, newer := n.must("rkt")
	n.works("a new pod", newer)
	next.remove()

	out, restarted := i.node("remove")
	if restarted || !strings.Contains(out, "pods live") {
		t.Errorf("restarted: %t. The script said %s", restarted, out)
	}
	if i.installed("bin/rktctl") || len(paths(t, []string{i.dropIns()})) > 1 {
		t.Error("the installation is still there")
	}
	for _, c := range []string{container, other} {
		n.works("removed", c)
	}
	n.works("a new container", p.start())
	n.works("a new container without a pause container", shared.start())
	shared.remove()
	p.remove()
	awaitSame(t, "nothing is left on the node", before, i.files)
	wait.Observe(t, "no pod is left", func() (bool, string) {
		left, _ := filepath.Glob(filepath.Join(i.data(), "pods/*/*"))
		return len(left) == 0, strings.Join(left, " ")
	})
}

func TestANodeWithoutPodsIsRemovedAtOnce(t *testing.T) {
	i := newInstaller(t)
	before := i.files()
	i.payload("v1")
	i.node("install")
	changed := filepath.Join(i.dropIns(), "rkt-oci.toml")
	if err := os.WriteFile(changed, []byte("version = 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, restarted := i.node("remove"); !restarted || !strings.Contains(out, "rkt-oci.toml was changed, and stays") {
		t.Errorf("restarted: %t. The script said %s", restarted, out)
	}
	if err := os.Remove(changed); err != nil {
		t.Error(err)
	}
	if left := i.files(); !slices.Equal(left, before) {
		t.Errorf("left: %q", left)
	}
	if out, restarted := i.node("remove"); restarted || !strings.Contains(out, "nothing is installed") {
		t.Errorf("removed twice: %s", out)
	}
}

// The container of a DaemonSet may end at any time, and is started again.
func TestARestartThatFailedIsMadeUpFor(t *testing.T) {
	i := newInstaller(t)
	i.payload("v1")
	for _, verb := range []string{"install", "remove"} {
		cmd := exec.CommandContext(t.Context(), "../../contrib/deploy/node", verb)
		cmd.Env = append(append(os.Environ(), i.env...), "RESTART=exit 1")
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("%s: containerd was not restarted, and it said %s", verb, out)
		}
		if out, restarted := i.node(verb); !restarted {
			t.Errorf("%s again: containerd was not restarted, and it said %s", verb, out)
		}
		if out, restarted := i.node(verb); restarted {
			t.Errorf("%s once more: containerd was restarted for nothing, and it said %s", verb, out)
		}
	}
}

func TestANodeWhoseContainerdReadsNoDropInsIsRefused(t *testing.T) {
	i := newInstaller(t)
	i.payload("v1")
	i.configure("")
	cmd := exec.CommandContext(t.Context(), "../../contrib/deploy/node", "install")
	cmd.Env = append(os.Environ(), i.env...)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), `add imports = ["/etc/containerd/conf.d/*.toml"]`) || i.installed("bin/rktctl") {
		t.Errorf("%v, and it said %s", err, out)
	}
}
