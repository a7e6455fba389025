package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// modesOf returns the modes of the directories above images and pods.
func modesOf(t *testing.T, data string) map[string]fs.FileMode {
	t.Helper()
	modes := map[string]fs.FileMode{}
	for _, name := range []string{".", "trees", "pods"} {
		st, err := os.Stat(filepath.Join(data, name))
		must(t, err)
		modes[name] = st.Mode().Perm()
	}
	return modes
}

// closesTheDataDirectory opens a data directory to every user of the host, as an earlier
// release left it, and checks that the next container of the node closes it. A container that
// runs meanwhile does not notice.
func (n *node) closesTheDataDirectory(t *testing.T) {
	t.Helper()
	data := dataDir(n.daemon.Dir())
	first, second := n.id(), n.id()
	n.run(t, []string{"-d"}, first, "sleep", "1000").must(t)
	tree := n.treeOf(first)
	before, err := os.Stat(filepath.Join(tree, "rootfs"))
	must(t, err)
	for name := range modesOf(t, data) {
		must(t, os.Chmod(filepath.Join(data, name), 0o755))
	}
	n.run(t, []string{"-d"}, second, "sleep", "1000").must(t)
	for name, want := range map[string]fs.FileMode{".": 0o711, "trees": 0o700, "pods": 0o750} {
		if got := modesOf(t, data)[name]; got != want {
			t.Errorf("mode of %s: %v, want %v", name, got, want)
		}
	}
	if after, err := os.Stat(filepath.Join(tree, "rootfs")); err != nil || after.Mode() != before.Mode() {
		t.Errorf("the tree's own mode was %v: %v, %v", before.Mode(), after, err)
	}
	for _, id := range []string{first, second} {
		n.exec(t, nil, id, "echo", "hello").must(t).mustSay(t, "hello\n")
		n.ends(id)
	}
}

func TestTheNextPodClosesADataDirectoryThatEveryUserCouldRead(t *testing.T) {
	aside(t, func(t *testing.T, c *column) { c.asideNode(t).closesTheDataDirectory(t) })
}

func TestTheNextPodClosesTheDataDirectoryOfRktsImages(t *testing.T) {
	ofRkt(t, []string{"fly"}, func(t *testing.T, n *node) { n.closesTheDataDirectory(t) })
}
