package cgroup

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Nobody else may know the hierarchy of version 2, so a parent that stays there stays for good, one for each pod.
func TestParentsOfVersion2ThatWereMadeForACgroupGoWithTheLastOne(t *testing.T) {
	h := needHost(t)
	root := cmp.Or(h.unified, h.roots[""])
	if root == "" {
		t.Skip("the host has no cgroup version 2")
	}
	others := filepath.Join(root, base, "others")
	if err := os.MkdirAll(others, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeOthers(h) })
	at := func(name string) *Group {
		dir := filepath.Join(others, "pods/pod1", name)
		if made, err := makeBelowParents(dir); err != nil || !made {
			t.Fatalf("made: %v, %v", made, err)
		}
		return newGroup(Record{Version: 2, Dirs: map[string]string{"": dir}, Unified: dir, UnifiedMade: true}, nil)
	}
	a, b := at("a"), at("b")
	for _, g := range []*Group{a, b} {
		if err := g.Remove(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(b.record.Unified); (err == nil) != (g == a) {
			t.Errorf("after the end of %s: %v", g.record.Unified, err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(others, "pods")); err == nil {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(others); err != nil {
		t.Errorf("the directory of others has gone: %v", err)
	}
}

// removeOthers removes what version 1 keeps of the tests' parents.
func removeOthers(h *hierarchies) {
	for _, root := range append(distinct(h.roots), h.unified) {
		for _, dir := range []string{"pods/pod2", "pods", ""} {
			_ = os.Remove(filepath.Join(root, base, "others", dir))
		}
	}
}

func TestWhoMakesAndWhoRemovesParentsDoNotHinderEachOther(t *testing.T) {
	h := needHost(t)
	t.Cleanup(func() { removeOthers(h) })
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for range 20 {
				g, err := Maker{}.Create(Path{Spec: fmt.Sprintf("%s/others/pods/pod2/%d", base, n), Namespace: "default", ID: "c"}, nil)
				if err == nil {
					err = g.End(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if _, err := os.Stat(filepath.Join(h.unified, base, "others")); h.unified != "" && err == nil {
		t.Error("the parents are left in version 2")
	}
}
