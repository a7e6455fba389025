package pod

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// greedy is a program that wants much more memory than limited apps have.
const greedy = "tail /dev/zero"

// newLimitedWorld is a world whose apps have 16 MiB each.
func newLimitedWorld(t *testing.T) *world {
	t.Helper()
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err != nil {
		if _, err := os.Stat("/sys/fs/cgroup/memory.stat"); err != nil {
			t.Skip("memory is not accounted")
		}
	}
	w := newWorld(t)
	w.resources = `,"resources":{"memory":{"limit":16777216}}`
	return w
}

// before checks the order of two events.
func (w *world) before(first, second string) {
	w.t.Helper()
	got := w.events.words()
	i, j := slices.Index(got, first), slices.Index(got, second)
	if i < 0 || j < 0 || i > j {
		w.t.Errorf("%q has to come before %q: %v", first, second, got)
	}
}

// requirements.md#C5
func TestOOMIsPublishedBeforeTheExitItCaused(t *testing.T) {
	w := newLimitedWorld(t)
	for range 5 {
		w.mustCreate("a", "exec "+greedy)
		w.mustStart("a", "")
		if e := w.mustWait("a", ""); e.Code != 137 {
			t.Errorf("exit %+v, want 137", e)
		}
		w.mustDelete("a", "")
		w.before("started a", "oom a")
		w.before("oom a", "exited a")
		w.events.forget()
	}
}

// The app was started before, so its OOM event does not wait for the exec's start.
//
// requirements.md#C5
func TestOOMOfAnExecComesBeforeItsExit(t *testing.T) {
	w := newLimitedWorld(t)
	w.mustCreate("a", "exec sleep 60")
	w.mustStart("a", "")
	w.mustAddExec("a", "e", "exec "+greedy)
	w.mustStart("a", "e")
	if e := w.mustWait("a", "e"); e.Code != 137 {
		t.Errorf("exit %+v, want 137", e)
	}
	w.before("started a", "oom a")
	w.before("oom a", "exited a/e")
	w.before("exec-started a/e", "exited a/e")
	w.end("a")
}

// requirements.md#C5
func TestOOMOfAChildIsPublishedWhileItsAppRunsOnAndIsItsAppsAlone(t *testing.T) {
	w := newLimitedWorld(t)
	path, next := scriptLines(t)
	w.mustCreate("neighbour", "exec sleep 60")
	w.mustStart("neighbour", "")
	w.mustCreate("a", greedy+"; echo survived > "+path+"; exec sleep 60")
	w.mustStart("a", "")
	next()
	wait.Until(t, "the event", func() bool { return slices.Contains(w.events.words(), "oom a") })
	w.mustBe("a", "", Running)
	w.end("a")
	w.end("neighbour")
	if got := w.events.words(); slices.Contains(got, "oom neighbour") {
		t.Errorf("events %v", got)
	}
}

// killing receives the app's events. While it handles the event of the start, it
// reports an OOM kill and the end of the process.
type killing struct {
	recorder
	process *process
	known   sync.WaitGroup
}

func (k *killing) Publish(e Event) {
	if e.Kind == EventStarted {
		k.known.Go(func() {
			k.process.oomKilled()
			k.process.exited(Exit{Code: 137, At: time.Now()})
		})
		time.Sleep(time.Millisecond) // as a rule they are handed in by now
	}
	k.recorder.Publish(e)
}

// requirements.md#C5
func TestOOMDuringThePublishingOfTheStartWaitsForIt(t *testing.T) {
	k := &killing{}
	k.process = newProcess("a", "", &noStdio{}, false, k, new(outbox))
	mustPush(t, k.process, EventCreated)
	if err := k.process.beginStart(); err != nil {
		t.Fatal(err)
	}
	k.process.oomKilled()
	if err := k.process.push(Event{Kind: EventStarted}); err != nil {
		t.Fatal(err)
	}
	k.known.Wait()
	if got, want := k.words(), []string{"created a", "started a", "oom a", "oom a", "exited a"}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	k.process.oomKilled()
	if got := len(k.words()); got != 5 {
		t.Errorf("published after the end: %v", k.words())
	}
}

// requirements.md#C5
func TestNoDescriptorIsLeftOfWatches(t *testing.T) {
	w := newLimitedWorld(t)
	none := watches(t)
	w.mustCreate("first", "exec sleep 60")
	before := watches(t)
	if before != none+1 {
		t.Errorf("%d watches became %d, want one more", none, before)
	}
	for range 3 {
		w.mustCreate("a", "exit 0")
		w.mustStart("a", "")
		w.mustWait("a", "")
		w.mustDelete("a", "")
	}
	if got := watches(t); got != before {
		t.Errorf("%d watches became %d", before, got)
	}
	w.end("first")
	if got := watches(t); got != none {
		t.Errorf("%d watches are left of %d", got, none)
	}
}

// watches counts the descriptors of OOM watches that this process has.
func watches(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name, _ := os.Readlink("/proc/self/fd/" + e.Name())
		if strings.Contains(name, "[eventfd]") || strings.HasSuffix(name, "/memory.events") {
			n++
		}
	}
	return n
}
