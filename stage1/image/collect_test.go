package image

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

// kept returns why a tree was kept, or "" if it was removed, and fails if it was not
// looked at.
func kept(t *testing.T, trees []Tree, digest string) string {
	t.Helper()
	i := slices.IndexFunc(trees, func(t Tree) bool { return t.Digest == digest })
	if i < 0 {
		t.Fatalf("%.20s was not looked at: %+v", digest, trees)
	}
	return trees[i].Kept
}

func (s *Store) there(digest string) bool {
	_, err := os.Stat(s.tree(digest))
	return err == nil
}

// replaced returns a store with an unused tree: the source of the tree has changed since.
func replaced(t *testing.T) (s *Store, digest string) {
	t.Helper()
	stage1test.RequireRoot(t)
	s = openStore(t)
	dir := stage1test.Dir(t, nil)
	i, err := s.Image(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "rootfs/more"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	return s, i.Digest()
}

func TestATreeThatNothingLeadsToIsCollected(t *testing.T) {
	s, digest := replaced(t)
	trees, err := s.Collect(t.Context(), nil, true)
	if err != nil || kept(t, trees, digest) != "" || !s.there(digest) {
		t.Fatalf("dry: %+v, %v", trees, err)
	}
	if trees[0].Name != "fake" || trees[0].Bytes == 0 {
		t.Errorf("what it is: %+v", trees[0])
	}
	trees, err = s.Collect(t.Context(), nil, false)
	if err != nil || kept(t, trees, digest) != "" || s.there(digest) {
		t.Fatalf("%+v, %v", trees, err)
	}
	entries, _ := filepath.Glob(filepath.Join(s.dir, "*", "*"))
	if len(entries) > 0 {
		t.Errorf("left: %v", entries)
	}
	if trees, err := s.Collect(t.Context(), nil, false); err != nil || len(trees) > 0 {
		t.Errorf("once more: %+v, %v", trees, err)
	}
}

func TestWhatSomethingLeadsToIsKept(t *testing.T) {
	pod := func(state string) func(*testing.T, *Store, string) []string {
		return func(t *testing.T, s *Store, digest string) []string {
			dir := filepath.Join(filepath.Dir(s.dir), "pods", state, podUUID)
			if err := os.MkdirAll(dir, 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, IDFile), []byte(digest+"\n"), 0o640); err != nil {
				t.Fatal(err)
			}
			return nil
		}
	}
	for why, lead := range map[string]func(*testing.T, *Store, string) []string{
		"a pod has it, being made":   pod("prepare"),
		"a pod has it":               pod("run"),
		"a pod has it, ended":        pod("exited-garbage"),
		"the configuration names it": func(_ *testing.T, _ *Store, digest string) []string { return []string{digest} },
		"it was imported": func(t *testing.T, s *Store, digest string) []string {
			i, err := openImage(s.tree(digest), digest)
			if err == nil {
				err = s.rememberImport(i, "somewhere", "")
			}
			if err != nil {
				t.Fatal(err)
			}
			return nil
		},
		"a shim has it": func(t *testing.T, s *Store, digest string) []string {
			i, err := s.hold(digest)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { i.Close() })
			return nil
		},
	} {
		t.Run(why, func(t *testing.T) {
			s, digest := replaced(t)
			wanted := lead(t, s, digest)
			trees, err := s.Collect(t.Context(), wanted, false)
			if err != nil {
				t.Fatal(err)
			}
			if got := kept(t, trees, digest); got == "" || !strings.HasPrefix(why, got) || !s.there(digest) {
				t.Errorf("kept %q, there %v", got, s.there(digest))
			}
		})
	}
}

func TestTheTreeOfAnUnchangedSourceIsKept(t *testing.T) {
	source, s := aged(t), openStore(t)
	i, err := s.Image(t.Context(), source, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	trees, err := s.Collect(t.Context(), nil, false)
	if err != nil || kept(t, trees, i.Digest()) != "it is "+source {
		t.Fatalf("%+v, %v", trees, err)
	}
	if err := os.RemoveAll(source); err != nil {
		t.Fatal(err)
	}
	trees, err = s.Collect(t.Context(), nil, false)
	if err != nil || kept(t, trees, i.Digest()) != "" {
		t.Errorf("its source has gone: %+v, %v", trees, err)
	}
	if records, _ := filepath.Glob(filepath.Join(s.dir, knownDir, "*")); len(records) > 0 {
		t.Errorf("records of it are left: %v", records)
	}
}

// If a pod's record cannot be read, the pod might have any tree: nothing is removed.
func TestNothingIsCollectedInDoubt(t *testing.T) {
	s, digest := replaced(t)
	dir := filepath.Join(filepath.Dir(s.dir), "pods/run", podUUID)
	if err := os.MkdirAll(filepath.Join(dir, IDFile), 0o750); err != nil { // a directory
		t.Fatal(err)
	}
	if trees, err := s.Collect(t.Context(), nil, false); err == nil || !s.there(digest) {
		t.Errorf("a pod that cannot be read: %+v, %v", trees, err)
	}
	s, digest = replaced(t)
	if err := os.MkdirAll(filepath.Join(s.dir, importedDir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, importedDir, digest+".json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if trees, err := s.Collect(t.Context(), nil, false); err == nil || !s.there(digest) {
		t.Errorf("an import that cannot be read: %+v, %v", trees, err)
	}
}

func TestADamagedTreeGoesWithThePodsThatHaveIt(t *testing.T) {
	source, s := aged(t), openStore(t)
	i, err := s.Image(t.Context(), source, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := damages()["a mode is another"](i.dir); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Image(t.Context(), source, ""); err != nil {
		t.Fatal(err)
	}
	aside := func() int {
		found, _ := filepath.Glob(filepath.Join(s.dir, damagedPrefix+"*"))
		return len(found)
	}
	if _, err := s.Collect(t.Context(), nil, false); err != nil || aside() != 1 {
		t.Fatalf("a shim has it, %d are left: %v", aside(), err)
	}
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Collect(t.Context(), nil, false); err != nil || aside() != 0 || !s.there(i.Digest()) {
		t.Errorf("%d are left: %v", aside(), err)
	}
}

// When a new tree is rendered, the trees that it replaces are collected.
func TestRenderingCollectsWhatWasReplaced(t *testing.T) {
	s, digest := replaced(t)
	s.Wanted = func() ([]string, error) { return nil, errors.New("the configuration cannot be read") }
	next, err := s.Image(t.Context(), stage1test.Dir(t, stage1test.Scripts{"gc": "exit 0"}), "")
	if err != nil || !s.there(digest) {
		t.Fatalf("in doubt: %v", err)
	}
	s.Wanted = func() ([]string, error) { return nil, nil }
	third := stage1test.Dir(t, stage1test.Scripts{"stop": "exit 0"})
	i, err := s.Image(t.Context(), third, "")
	if err != nil {
		t.Fatal(err)
	}
	if s.there(digest) || !s.there(next.Digest()) || !s.there(i.Digest()) {
		t.Errorf("the old one is there: %v; the one in use: %v; the new one: %v", s.there(digest), s.there(next.Digest()), s.there(i.Digest()))
	}
}

func TestAnImportIsForgotten(t *testing.T) {
	stage1test.RequireRoot(t)
	s := openStore(t)
	i, err := s.ImportPath(t.Context(), stage1test.Dir(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(i.Close(), s.Forget(t.Context(), i.Digest())); err != nil {
		t.Fatal(err)
	}
	if err := s.Forget(t.Context(), i.Digest()); !errors.Is(err, errGone) {
		t.Errorf("twice: %v", err)
	}
	if all, err := s.Imports(); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// A tree is kept while its image is open, even if other processes collect meanwhile.
func TestCollectingAndFirstUseCanRace(t *testing.T) {
	stage1test.RequireRoot(t)
	dir, s := stage1test.Dir(t, nil), openStore(t)
	stop := make(chan struct{})
	var collector sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			// Without records every look-up renders the tree, or finds one that is about to
			// be removed.
			records, _ := filepath.Glob(filepath.Join(s.dir, knownDir, "*.json"))
			for _, r := range records {
				_ = os.Remove(r)
			}
			if _, err := s.Collect(t.Context(), nil, false); err != nil {
				t.Errorf("collect: %v", err)
				return
			}
		}
	})
	var users sync.WaitGroup
	for range 3 {
		users.Go(func() {
			for range 8 {
				i, err := s.Image(t.Context(), dir, "")
				if err != nil {
					t.Error(err)
					return
				}
				for range 3 {
					if _, err := os.Stat(filepath.Join(i.dir, "rootfs/run")); err != nil {
						t.Errorf("the tree has gone from under its user: %v", err)
					}
				}
				if err := i.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	users.Go(func() {
		for range 3 {
			if out, err := renderIn(s, dir).CombinedOutput(); err != nil {
				t.Errorf("another process: %v: %s", err, out)
			}
		}
	})
	users.Wait()
	close(stop)
	collector.Wait()
}
