package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// imageOfOurs copies the image of a bundled stage1.
func imageOfOurs(t *testing.T, name string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("cp", "-a", filepath.Join(suite.shims, "stage1", name), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// treeOf returns the tree of a container's pod.
func (n *node) treeOf(id string) string {
	n.t.Helper()
	dir, _ := n.pod(n.t, id)
	digest := strings.TrimSpace(read(n.t, filepath.Join(dir, "stage1TreeStoreID")))
	return filepath.Join(dataDir(n.daemon.Dir()), "trees", digest)
}

// The tree of a changed image is kept as long as a pod uses it, and is collected afterwards.
// The pod goes on.
func TestATreeIsCollectedAfterItsLastPod(t *testing.T) {
	aside(t, func(t *testing.T, c *column) {
		n := c.asideNode(t)
		dir := imageOfOurs(t, "native")
		n.says("[stage1.native]\npath = %q\n", dir)
		first := n.id()
		n.runs(first)
		old := n.treeOf(first)
		write(t, filepath.Join(dir, "rootfs/changed"), "")
		second := n.id()
		n.runs(second) // it renders a tree, and so collects
		tree := n.treeOf(second)
		if tree == old {
			t.Fatal("the change was not seen")
		}
		gc := func() string {
			out, err := n.rktctl("stage1", "gc")
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		if out := gc(); strings.Count(out, "kept: a pod has it") < 1 || strings.Contains(out, "removed") {
			t.Errorf("with both pods: %s", out)
		}
		n.exec(t, nil, first, "echo", "hello").must(t).mustSay(t, "hello\n")
		n.ends(first)
		wait.Observe(t, "the tree without pods goes", func() (bool, string) { // its shim may still hold it for a moment
			said := gc()
			_, err := os.Stat(old)
			return err != nil, said
		})
		if _, err := os.Stat(tree); err != nil {
			t.Errorf("the tree of the other pod: %v", err)
		}
		n.exec(t, nil, second, "echo", "hello").must(t).mustSay(t, "hello\n")
		n.ends(second)
	})
}

// A stage1 whose ACI has only a manifest and a dependency runs pods. On a node that requires
// signatures it is refused.
func TestAnACIRunsPodsWithItsDependencies(t *testing.T) {
	aside(t, func(t *testing.T, c *column) {
		n := c.asideNode(t)
		whole, acis := imageOfOurs(t, "native"), t.TempDir()
		var manifest map[string]any
		if err := json.Unmarshal([]byte(read(t, filepath.Join(whole, "manifest"))), &manifest); err != nil {
			t.Fatal(err)
		}
		manifest["dependencies"] = []any{map[string]any{"imageName": "example.com/base"}}
		text, err := json.Marshal(manifest)
		if err != nil {
			t.Fatal(err)
		}
		top := t.TempDir()
		write(t, filepath.Join(top, "manifest"), string(text))
		write(t, filepath.Join(whole, "manifest"), `{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "example.com/base"}`)
		aci := filepath.Join(t.TempDir(), "top.aci")
		for _, args := range [][]string{{"-C", whole, "-czf", filepath.Join(acis, "base.aci"), "manifest", "rootfs"}, {"-C", top, "-cf", aci, "manifest"}} {
			if out, err := exec.Command("tar", args...).CombinedOutput(); err != nil {
				t.Fatalf("tar: %v: %s", err, out)
			}
		}
		const asks = stage1Annotation + "=composed"
		stage1 := "[stage1.composed]\npods_may_ask = true\npath = \"" + aci + "\"\n"
		n.says("%s", stage1)
		n.refuses([]string{asks}, aci, "depends on example.com/base", "no ACI of this name")
		n.says("%s[aci]\ndependencies = [%q]\nkeyring = %q\n", stage1, acis, t.TempDir())
		n.refuses([]string{asks}, aci, "run rktctl stage1 import")
		n.says("%s[aci]\ndependencies = [%q]\n", stage1, acis)
		id := n.id()
		n.runs(id, asks)
		n.exec(t, nil, id, "echo", "hello").must(t).mustSay(t, "hello\n")
		n.ends(id)
	})
}
