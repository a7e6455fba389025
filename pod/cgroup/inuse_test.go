package cgroup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

func itoa(n int) string { return strconv.Itoa(n) }

// refuses checks that a path that a client has chosen is not made.
func refuses(t *testing.T, path, why string) {
	t.Helper()
	g, err := Maker{}.Create(Path{Spec: path, Namespace: "ns", ID: "id"}, nil)
	if err == nil {
		destroy(t, g)
		t.Fatalf("%s was made at %s", path, g.Path())
	}
	var used *InUseError
	if !errors.As(err, &used) || !errdefs.IsFailedPrecondition(err) || used.Path != path || !strings.Contains(err.Error(), why) {
		t.Errorf("%s: %v; want %q", path, err, why)
	}
}

// A sibling would be outside of the limits of the cgroup that the client has named.
func TestAChosenCgroupThatIsInUseIsRefused(t *testing.T) {
	needHost(t)
	g := create(t, "used", nil)
	refuses(t, g.Path(), "in use by another container")
	_ = g.lock.Close() // what is in it belongs to no container of this runtime
	p := enter(t, g, "exec sleep 60")
	refuses(t, g.Path(), "in use by the processes ["+itoa(p.Process.Pid)+"]")
	if p.ProcessState != nil {
		t.Error("the process was killed")
	}
	refuses(t, base, "in use by the processes ["+itoa(p.Process.Pid)+"]") // a cgroup above
}

// Of two containers, one below the other, the end of one would kill both. A cgroup may have no
// process yet, or not any more.
func TestCgroupsOfLivingContainersAreNeverOneBelowTheOther(t *testing.T) {
	needHost(t)
	removeLater(t, "outer")
	g := create(t, "outer/inner", nil)
	refuses(t, base+"/outer", "below it")
	refuses(t, base+"/outer/inner/core", "above it")
	for _, dir := range g.dirs {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("the container's cgroup was removed: %v", err)
		}
		if _, err := os.Stat(filepath.Join(dir, "core")); err == nil {
			t.Errorf("%s/core is left", dir)
		}
	}
	create(t, "outer/other", nil)
}

func TestAFileOfTheKernelsIsNoCgroup(t *testing.T) {
	needHost(t)
	g := create(t, "files", nil)
	_ = g.lock.Close()
	if _, err := (Maker{}).Create(Path{Spec: g.Path() + "/cgroup.procs"}, nil); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Error(err)
	}
}

// Only the process that has locked the cgroup of a dead shim kills its processes.
func TestTheCgroupOfADeadShimIsTakenByOneAtATime(t *testing.T) {
	needHost(t)
	made := create(t, "dead", nil)
	record := func() *Group {
		g, err := FromRecord(made.Record())
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	limit, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if ok, err := record().Take(limit); ok || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while the shim lives: %v, %v", ok, err)
	}
	_ = made.lock.Close()
	first := record()
	if ok, err := first.Take(t.Context()); !ok || err != nil {
		t.Fatalf("%v, %v", ok, err)
	}
	refuses(t, made.Path(), "in use by another container")
	second, taken := record(), make(chan error)
	go func() {
		ok, err := second.Take(t.Context())
		if ok && second.lock != nil {
			err = errors.Join(err, second.Release())
		} else if second.lock != nil {
			err = errors.New("it is locked, and not taken")
		}
		taken <- err
	}()
	if err := first.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-taken; err != nil {
		t.Error(err)
	}
	later := create(t, "dead", nil)
	if ok, err := record().Take(t.Context()); ok || err != nil {
		t.Errorf("a later container's: %v, %v", ok, err)
	}
	refuses(t, later.Path(), "in use by another container")
}

func TestTheCgroupOfADeadShimWithALivingContainerBelowIsNotTaken(t *testing.T) {
	needHost(t)
	dead := create(t, "dead", nil)
	_ = dead.lock.Close()
	create(t, "dead/living", nil)
	g, err := FromRecord(dead.Record())
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := g.Take(t.Context()); ok || err == nil || !strings.Contains(err.Error(), "not killed") {
		t.Errorf("%v, %v", ok, err)
	}
}
