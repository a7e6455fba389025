package appimage

import (
	"archive/tar"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// outside is a directory of the host that images attack.
type outside struct {
	t   *testing.T
	dir string
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{t, t.TempDir()}
	for _, d := range []string{"", "d"} {
		if err := os.MkdirAll(filepath.Join(o.dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(o.dir, d, "secret"), []byte("of the host"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// state describes all files, so that any change of one shows.
func (o *outside) state() string {
	o.t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(o.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := os.Lstat(path)
		if err != nil {
			return err
		}
		s := st.Sys().(*syscall.Stat_t)
		list := make([]byte, 4096)
		n, _ := unix.Llistxattr(path, list)
		var text []byte
		if st.Mode().IsRegular() {
			text, err = os.ReadFile(path)
		}
		fmt.Fprintf(&all, "%s %v %d %d links %d changed %d attributes %q content %q\n", path, st.Mode(), s.Uid, s.Gid, s.Nlink, s.Ctim.Nano(), list[:max(n, 0)], text)
		return err
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return all.String()
}

// Each attack either makes the image fail, or ends inside the image's own tree.
func TestNoImageReachesOutOfItsTree(t *testing.T) {
	requireRoot(t)
	up := strings.Repeat("../", 30)
	one := func(entries ...entry) [][]entry { return [][]entry{entries} }
	for name, attack := range map[string]func(o string) [][]entry{
		"a name with ..": func(o string) [][]entry {
			return one(file(up+o+"/made", "x"), file(up+o+"/secret", "x"))
		},
		"an absolute name": func(o string) [][]entry { return one(file(o+"/secret", "x"), dir(o)) },
		"a file through an absolute link": func(o string) [][]entry {
			return one(symlink("l", o), file("l/secret", "x"), file("l/made", "x"), dir("l/d"))
		},
		"a file through a relative link": func(o string) [][]entry {
			return one(dir("a"), symlink("a/l", up+o), file("a/l/secret", "x"), file("a/l/made", "x"))
		},
		"a file through a chain of links": func(o string) [][]entry {
			return one(symlink("l1", o), symlink("l2", "l1"), symlink("l3", "/l2/d"), file("l3/secret", "x"), file("l3/../made", "x"))
		},
		"a file over a link to a file": func(o string) [][]entry {
			return one(symlink("f", o+"/secret"), file("f", "x").with(0o777, 1000))
		},
		"a hard link to a file outside": func(o string) [][]entry {
			return one(hardlink("f", o+"/secret"), file("f", "x").with(0o777, 1000))
		},
		"a hard link with ..": func(o string) [][]entry {
			return one(hardlink("f", up+o+"/secret"), file("f", "x"))
		},
		"a hard link through a link": func(o string) [][]entry {
			return one(symlink("l", o), hardlink("f", "l/secret").with(0o777, 1000), file("f", "x"))
		},
		"a hard link to a link": func(o string) [][]entry {
			return one(symlink("l", o+"/secret"), hardlink("f", "l").with(0o4777, 1000, "user.x", "y"), file("f", "x"))
		},
		"a hard link to ..": func(o string) [][]entry { return one(hardlink("f", ".."), hardlink("g", "a/..")) },
		"a link in the layer below": func(o string) [][]entry {
			return [][]entry{{symlink("l", o)}, {file("l/secret", "x"), file("l/made", "x")}}
		},
		"a directory that becomes a link": func(o string) [][]entry {
			return [][]entry{{dir("d"), file("d/f", "x")}, {symlink("d", o)}, {file("d/secret", "x"), dir("d").with(0o777, 1000)}}
		},
		"times of a directory that became a link": func(o string) [][]entry {
			return one(dir("d"), entry{tar.Header{Name: "d", Typeflag: tar.TypeSymlink, Linkname: o, ModTime: epoch}, ""}, symlink("e", o))
		},
		"a whiteout through a link": func(o string) [][]entry {
			return [][]entry{{symlink("l", o)}, {file("l/.wh.secret", ""), file("l/.wh.d", "")}}
		},
		"an opaque directory through a link": func(o string) [][]entry {
			return [][]entry{{symlink("l", o)}, {file("l/.wh..wh..opq", "")}}
		},
		"a whiteout with ..":           func(o string) [][]entry { return one(file(".wh...", ""), file("a/.wh...", "")) },
		"a whiteout of the directory":  func(o string) [][]entry { return one(file("a/.wh..", ""), file(".wh..", "")) },
		"a whiteout in a .. directory": func(o string) [][]entry { return one(file(up+o+"/.wh.secret", "")) },
		"attributes of a link": func(o string) [][]entry {
			return one(symlink("l", o+"/secret").with(0o4777, 1000, "user.x", "y"), symlink("m", o).with(0o777, 1000))
		},
		"a device through a link": func(o string) [][]entry {
			return one(symlink("l", o), node("l/secret", tar.TypeChar, 1, 3), node("l/made", tar.TypeBlock, 8, 0), node("l/fifo", tar.TypeFifo, 0, 0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutside(t)
			before := o.state()
			i, err := ofLayers(t, attack(o.dir)...)
			if after := o.state(); after != before {
				t.Errorf("opened with %v; before:\n%safter:\n%s", err, before, after)
			}
			if err != nil {
				return
			}
			for _, f := range []string{"f", "g"} {
				if got := text(t, i, f); got == "of the host" && !strings.Contains(name, "link to a link") {
					t.Errorf("%s has a file of the host", f)
				}
			}
		})
	}
}

// The attacks are none if a careless program does not fall for them.
func TestTheAttacksReachOutOfACarelessTree(t *testing.T) {
	requireRoot(t)
	o := newOutside(t)
	before := o.state()
	tree := t.TempDir()
	if err := os.Symlink(o.dir, filepath.Join(tree, "l")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "l/made"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if o.state() == before {
		t.Error("a changed directory has the same state")
	}
}

// A directory of an image cannot tell an overlay to look elsewhere.
func TestAnImageHasNoAttributesOfAnOverlay(t *testing.T) {
	requireRoot(t)
	i, err := ofLayers(t, []entry{dir("d").with(0o755, 0, "trusted.overlay.opaque", "y", "trusted.overlay.redirect", "/"), file("d/f", "x")})
	if err != nil {
		t.Fatal(err)
	}
	list := make([]byte, 4096)
	if n, err := unix.Llistxattr(filepath.Join(i.Root(), "d"), list); err != nil || strings.Contains(string(list[:n]), "overlay") {
		t.Errorf("%q, %v", list[:n], err)
	}
}
