package cgroup

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestAPlainCgroupIsMadeAndRemovedWithThoseBelowIt(t *testing.T) {
	h, top := needHost(t), filepath.Join(base, "plain")
	for range 2 { // the second call finds it
		if err := MakePlain(filepath.Join(top, "a/b")); err != nil {
			t.Fatal(err)
		}
	}
	made := 0
	for _, dir := range h.places(filepath.Join(top, "a/b")) {
		if _, err := os.Stat(dir); err == nil {
			made++
		}
	}
	if made == 0 {
		t.Error("made in no hierarchy")
	}
	for range 2 {
		if err := RemoveEmpty(t.Context(), top); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range h.places(top) {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
}

// A process in the cgroup is not moved or killed: the removal fails and names it.
func TestARemovalOfAPlainCgroupKillsNoProcess(t *testing.T) {
	h, top := needHost(t), filepath.Join(base, "plain")
	if err := MakePlain(top); err != nil {
		t.Fatal(err)
	}
	dir, file := h.dirs(top)[primary(h.version)], map[int]string{1: "tasks", 2: "cgroup.procs"}[h.version]
	in := enterDirs(t, []string{dir}, file, "exec sleep 300")
	t.Cleanup(func() {
		_ = in.Process.Kill()
		<-in.ended
		if err := RemoveEmpty(context.Background(), top); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := RemoveEmpty(ctx, top); err == nil || !strings.Contains(err.Error(), strconv.Itoa(in.Process.Pid)) {
		t.Errorf("%v, want an error that names process %d", err, in.Process.Pid)
	}
}
