package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// exhaust is a command that needs much more memory than the tests allow.
const exhaust = "tail /dev/zero"

func limited16M() *specs.LinuxResources {
	return &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr[int64](16 << 20)}}
}

// watch counts what a watch publishes.
func watch(t *testing.T, g *Group) (w *OOMWatch, published func() int) {
	t.Helper()
	return watchIn(t, new(OOMWatches), g)
}

// watchIn is watch for a cgroup of a pod with several.
func watchIn(t *testing.T, pod *OOMWatches, g *Group) (w *OOMWatch, published func() int) {
	t.Helper()
	events := make(chan struct{}, 1000)
	w, err := pod.Watch(g, func() { events <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	if w == nil {
		t.Skip("memory is not accounted")
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if err := w.Close(); err != nil {
			t.Errorf("a second time: %v", err)
		}
	})
	return w, func() int { return len(events) }
}

// requirements.md#C5
func TestAKillIsPublishedWithoutAnybodyAsking(t *testing.T) {
	needMemory(t)
	g := create(t, "oom", limited16M())
	_, published := watch(t, g)
	for n := 1; n <= 2; n++ {
		<-enter(t, g, "exec "+exhaust).ended // until then its memory is charged, and who enters may be killed
		wait.Until(t, fmt.Sprintf("kill %d is published", n), func() bool { return published() == n })
	}
}

// Kills in quick succession may be published at once, and none is left for Report.
// requirements.md#C5
func TestTheLastOfSeveralKillsIsFound(t *testing.T) {
	needMemory(t)
	g := create(t, "oom-several", limited16M())
	w, published := watch(t, g)
	enter(t, g, exhaust+" & "+exhaust+" & wait; exec sleep 60")
	wait.Observe(t, "both kills are found", func() (bool, string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		found := uint64(0)
		for _, n := range w.kills {
			found += n
		}
		return found == 2 && published() > 0, fmt.Sprintf("%d found, %d published", found, published())
	})
}

// requirements.md#C5
func TestReportFindsAKillThatNobodyHasAnnounced(t *testing.T) {
	needMemory(t)
	g := create(t, "oom-report", limited16M())
	w, published := watch(t, g)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.Report()
	if published() != 0 {
		t.Fatal("published without a kill")
	}
	enter(t, g, exhaust+"; exec sleep 60")
	wait.Until(t, "the kernel counts a kill", func() bool { return mustStats(t, g).OOM["oom_kill"] == 1 })
	w.Report()
	w.Report()
	if published() != 1 {
		t.Errorf("published %d times, want once", published())
	}
}

// requirements.md#C5
func TestAKillInACgroupBelowCounts(t *testing.T) {
	needMemory(t)
	g := create(t, "oom-nested", limited16M())
	w, published := watch(t, g)
	sub, tasks := below(t, g, "memory")
	enterDirs(t, sub, tasks, exhaust+"; exec sleep 60")
	wait.Until(t, "the kill is published", func() bool { return published() == 1 })
	w.Report()
	if published() != 1 {
		t.Errorf("published %d times", published())
	}
}

// The kernel notifies every cgroup below the one that has run out of memory.
// requirements.md#C5
func TestAnOOMOfThePodIsThatOfWhomItKills(t *testing.T) {
	h := needMemory(t)
	parent := filepath.Join(base, "oom-pod")
	t.Cleanup(func() {
		for _, dir := range h.places(parent) {
			_ = os.Remove(dir)
		}
	})
	victim, bystander := create(t, "oom-pod/victim", nil), create(t, "oom-pod/bystander", nil)
	limit := filepath.Join(h.roots["memory"], parent, "memory.limit_in_bytes")
	if h.version == 2 {
		limit = filepath.Join(h.roots[""], parent, "memory.max")
	}
	if err := os.WriteFile(limit, []byte("16777216"), 0); err != nil {
		t.Fatal(err)
	}
	pod := new(OOMWatches)
	_, killed := watchIn(t, pod, victim)
	_, spared := watchIn(t, pod, bystander)
	enter(t, bystander, "exec sleep 60")
	enter(t, victim, exhaust+"; exec sleep 60")
	wait.Until(t, "the kill is published", func() bool { return killed() == 1 })
	wait.Still(t, "how often the neighbour is published", spared)
	if spared() != 0 {
		t.Error("the neighbour was published, too")
	}
}

// On version 1 the watches of a pod share a descriptor. The kernel announces on it that a cgroup was
// removed, which is not taken for the announcement of a kill.
// requirements.md#C5
func TestTheWatchesOfAPodShareADescriptorOnVersion1(t *testing.T) {
	needMemory(t)
	needV1(t)
	pod := new(OOMWatches)
	last := create(t, "oom-last", limited16M())
	_, published := watchIn(t, pod, last)
	before := descriptors(t)
	const others = 8
	for n := range others {
		g := create(t, fmt.Sprintf("oom-other-%d", n), nil)
		w, killed := watchIn(t, pod, g)
		if now := descriptors(t); now != before+1 { // the lock of the cgroup
			t.Fatalf("another cgroup has %d descriptors, want 1", now-before)
		}
		if err := errors.Join(w.Close(), g.End(t.Context())); err != nil {
			t.Fatal(err)
		}
		if killed() != 0 {
			t.Error("the removal of a cgroup was published")
		}
	}
	wait.Until(t, "the kernel has announced the removals", func() bool {
		pod.mu.Lock()
		defer pod.mu.Unlock()
		return len(pod.closed) == 0
	})
	for n := 1; n <= 2; n++ {
		<-enter(t, last, "exec "+exhaust).ended // until then its memory is charged, and who enters may be killed
		wait.Until(t, fmt.Sprintf("kill %d is published", n), func() bool { return published() == n })
	}
	first := pod.eventfd
	for w := range pod.watches {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	if pod.eventfd != nil || first.Close() == nil {
		t.Error("the descriptor is open without a watch")
	}
}

// A cgroup whose watch was closed may stay, so that its removal is not announced.
// requirements.md#C5
func TestACgroupThatStaysHidesNoKillOfAnother(t *testing.T) {
	needMemory(t)
	pod := new(OOMWatches)
	other := create(t, "oom-other", limited16M())
	_, published := watchIn(t, pod, other)
	stays, _ := watchIn(t, pod, create(t, "oom-stays", nil))
	if err := stays.Close(); err != nil {
		t.Fatal(err)
	}
	enter(t, other, exhaust+"; exec sleep 60")
	wait.Until(t, "the kill is published", func() bool { return published() == 1 })
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Kills in several cgroups at once are each published for their cgroup.
// requirements.md#C5
func TestKillsInSeveralCgroupsAtOnce(t *testing.T) {
	needMemory(t)
	pod := new(OOMWatches)
	var published []func() int
	for n := range 4 {
		g := create(t, fmt.Sprintf("oom-at-once-%d", n), limited16M())
		_, kills := watchIn(t, pod, g)
		published = append(published, kills)
		enter(t, g, exhaust+"; exec sleep 60")
	}
	for n, kills := range published {
		wait.Until(t, fmt.Sprintf("the kill in cgroup %d is published", n), func() bool { return kills() == 1 })
	}
}

// requirements.md#C5
func TestWithoutTheOOMKillerTheLackOfMemoryIsPublishedOnVersion1(t *testing.T) {
	needV1(t)
	g := create(t, "oom-disabled", &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr[int64](16 << 20), DisableOOMKiller: ptr(true)}})
	_, published := watch(t, g)
	enter(t, g, exhaust)
	wait.Until(t, "the OOM is published", func() bool { return published() >= 1 })
	if n := readUint(t, g, "memory.oom_control", "oom_kill"); n != 0 {
		t.Errorf("the kernel has killed %d", n)
	}
}

// requirements.md#C5
func TestNoWatchWithoutTheController(t *testing.T) {
	for _, r := range []Record{
		{Version: 1, Path: "/x", Dirs: map[string]string{"devices": "/nowhere"}},
		{Version: 2, Path: "/x", Dirs: map[string]string{"": t.TempDir()}},
	} {
		w, err := new(OOMWatches).Watch(newGroup(r, nil), func() {})
		if w != nil || err != nil {
			t.Errorf("%v: %v, %v", r, w, err)
		}
		w.Report()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A directory with version 2's files is enough for counting. requirements.md#C5
func TestCountsOfVersion2(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "memory.events"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	published := 0
	w := &OOMWatch{group: newGroup(Record{Version: 2, Dirs: map[string]string{"": dir}}, nil), publish: func() { published++ }}
	for _, step := range []struct {
		text string
		want int
	}{
		{"low 0\nhigh 7\nmax 3\noom 0\noom_kill 0\noom_group_kill 0\n", 0},
		{"low 0\nhigh 7\nmax 9\noom 1\noom_kill 0\n", 0}, // out of memory, and no process was killed
		{"low 0\nhigh 7\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n", 1},
		{"low 0\nhigh 7\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n", 1},
		{"low 0\nhigh 7\nmax 9\noom 2\noom_kill 4\noom_group_kill 1\n", 2},
	} {
		write(step.text)
		w.Report()
		if published != step.want {
			t.Errorf("after %q: published %d times, want %d", step.text, published, step.want)
		}
	}
}

func readUint(t testing.TB, g *Group, file, key string) uint64 {
	t.Helper()
	values, err := readKeyed(filepath.Join(g.Dir("memory"), file))
	if err != nil {
		t.Fatal(err)
	}
	return values[key]
}
