package cgroup

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A container can open the directory of its cgroup through a read-only mount, and lock it.
func TestALockOnTheDirectoryOfACgroupIsNoOwner(t *testing.T) {
	needHost(t)
	made := create(t, "attacked", nil)
	p := enter(t, made, "exec sleep 600")
	attacker := lockAll(t, made)
	_ = made.lock.Close() // the shim dies
	g, err := FromRecord(made.Record())
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := g.Take(within(t, 2*time.Second)); !ok || err != nil {
		t.Fatalf("it is not taken: %v, %v", ok, err)
	}
	if err := g.End(within(t, 20*time.Second)); err != nil {
		t.Errorf("end: %v", err)
	}
	gone(t, g, p)
	attacker()
}

// lockAll takes each lock that can be taken with a file that is open for reading, on the
// directories of a cgroup, on one below them, and on their files.
func lockAll(t *testing.T, g *Group) (release func()) {
	t.Helper()
	var files []*os.File
	for _, dir := range g.dirs {
		if err := os.MkdirAll(filepath.Join(dir, "below"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"", "below", "cgroup.procs"} {
			f, err := os.Open(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
			if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
				t.Errorf("stage 0 holds a lock on %s: %v", f.Name(), err)
			}
		}
	}
	return func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
}

// Only the owner of a lock removes its file.
func TestALockLeavesNoFile(t *testing.T) {
	needHost(t)
	g := create(t, "locked", nil)
	path := g.lock.Name()
	if !exists(path) {
		t.Fatalf("%s is not there", path)
	}
	if err := g.End(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	if exists(path) {
		t.Errorf("%s is left", path)
	}

	killed := create(t, "locked", nil)
	_ = killed.lock.Close()
	taken, err := FromRecord(killed.Record())
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.removeDirs(t.Context()); err != nil { // as systemd may do
		t.Fatal(err)
	}
	if ok, err := taken.Take(t.Context()); !ok || err != nil {
		t.Fatalf("%v, %v", ok, err)
	}
	if err := taken.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if path := lockPath(taken.Version(), taken.record.Inode); exists(path) {
		t.Errorf("%s of a killed owner is left", path)
	}
}

// No user but root may hold up a container.
func TestOnlyRootCanOpenALock(t *testing.T) {
	needHost(t)
	create(t, "private", nil)
	info, err := os.Stat(locks)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%s: %v, %v", locks, info, err)
	}
}
