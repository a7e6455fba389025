package pod

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
)

// mailbox is an outbox whose publications are kept.
type mailbox struct {
	outbox
	lanes map[ExecID]*lane
	words []string
	fail  error // of the next publication
}

func newMailbox(execs ...ExecID) *mailbox {
	m := &mailbox{lanes: map[ExecID]*lane{}}
	for _, id := range append([]ExecID{""}, execs...) {
		m.lanes[id] = m.lane(func(e Event) error {
			if err := m.fail; err != nil {
				m.fail = nil
				return err
			}
			word := e.Kind.String()
			if e.Exec != "" {
				word += "/" + string(e.Exec)
			}
			m.words = append(m.words, word)
			return nil
		})
	}
	return m
}

func (m *mailbox) put(exec ExecID, kinds ...EventKind) (err error) {
	for _, k := range kinds {
		err = m.lanes[exec].push(Event{Kind: k, App: "a", Exec: exec})
	}
	return err
}

// expect checks all that was published.
func (m *mailbox) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(m.words, want) {
		t.Errorf("published %v, want %v", m.words, want)
	}
}

// running is a mailbox of an app that runs, with execs that were added.
func running(execs ...ExecID) *mailbox {
	m := newMailbox(execs...)
	_ = m.put("", EventCreated)
	for _, id := range execs {
		_ = m.put(id, EventExecAdded)
	}
	_ = m.lanes[""].begin(admitted)
	_ = m.put("", EventStarted)
	m.words = nil
	return m
}

func TestNothingIsPublishedBeforeTheCreation(t *testing.T) {
	m := newMailbox("e")
	_ = m.put("e", EventExecAdded)
	_ = m.put("", EventOOM, EventExited)
	m.expect(t)
	_ = m.put("", EventCreated)
	m.expect(t, "created", "exec-added/e", "oom", "exited")
}

// requirements.md#X2
func TestAnEventDuringAStartFollowsTheStart(t *testing.T) {
	m := newMailbox()
	_ = m.put("", EventCreated)
	_ = m.lanes[""].begin(admitted)
	_ = m.put("", EventOOM, EventExited)
	m.expect(t, "created")
	_ = m.put("", EventStarted)
	m.expect(t, "created", "started", "oom", "exited")
}

func TestAnExitDuringAStartThatFailsIsPublishedWithItsEnd(t *testing.T) {
	m := newMailbox()
	_ = m.put("", EventCreated)
	_ = m.lanes[""].begin(admitted)
	_ = m.put("", EventExited)
	m.lanes[""].unstart()
	m.expect(t, "created", "exited") // the state of the process decides whether clients see it
}

func TestAnExecThatWasNotStartedHasNoExit(t *testing.T) {
	m := running("e")
	if err := m.put("e", EventExited); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("exit without a start: %v", err)
	}
	_ = m.lanes["e"].begin(admitted)
	_ = m.put("e", EventExited)
	m.lanes["e"].unstart()
	m.expect(t)
}

// requirements.md#E1
func TestTheExitOfTheAppWaitsForItsExecs(t *testing.T) {
	m := running("starting", "running", "added")
	_ = m.lanes["starting"].begin(admitted)
	_ = m.lanes["running"].begin(admitted)
	_ = m.put("running", EventExecStarted)
	_ = m.put("", EventExited)
	_ = m.put("running", EventExited)
	m.expect(t, "exec-started/running", "exited/running")
	_ = m.put("starting", EventExited)
	m.expect(t, "exec-started/running", "exited/running")
	_ = m.put("starting", EventExecStarted)
	m.expect(t, "exec-started/running", "exited/running", "exec-started/starting", "exited/starting", "exited")
}

func TestTheExitOfTheAppWaitsForNoExecWhoseStartFails(t *testing.T) {
	for name, end := range map[string]func(*lane) bool{
		"failed":  func(l *lane) bool { l.unstart(); return true },
		"dropped": (*lane).drop,
	} {
		m := running("e")
		_ = m.lanes["e"].begin(admitted)
		_ = m.put("", EventExited)
		m.expect(t)
		if !end(m.lanes["e"]) {
			t.Errorf("%s: refused", name)
		}
		m.expect(t, "exited")
		if err := m.put("e", EventExecStarted, EventExited); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s: a start after the exit of the app: %v", name, err)
		}
		m.expect(t, "exited")
	}
}

func TestAProcessWhoseStartWasPublishedIsNotAbandoned(t *testing.T) {
	m := running("e")
	_ = m.lanes["e"].begin(admitted)
	_ = m.put("e", EventExecStarted)
	if m.lanes["e"].drop() {
		t.Error("its exit would be missing")
	}
	_ = m.put("", EventExited)
	_ = m.put("e", EventExited)
	m.expect(t, "exec-started/e", "exited/e", "exited")
}

// requirements.md#C5
func TestAnExitFollowsTheOOMThatWasSeenBefore(t *testing.T) {
	m := newMailbox("e")
	_ = m.put("", EventCreated)
	_ = m.put("e", EventExecAdded)
	_ = m.lanes["e"].begin(admitted)
	_ = m.put("e", EventExecStarted)
	_ = m.lanes[""].begin(admitted)
	_ = m.put("", EventOOM) // held, because the app is being started
	_ = m.put("e", EventExited)
	m.expect(t, "created", "exec-added/e", "exec-started/e")
	_ = m.put("", EventStarted)
	m.expect(t, "created", "exec-added/e", "exec-started/e", "started", "oom", "exited/e")
}

func TestNothingFollowsTheExitButTheDeletion(t *testing.T) {
	m := running("e")
	_ = m.put("", EventExited)
	for _, k := range []EventKind{EventOOM, EventPaused, EventCheckpointed, EventExited, EventStarted} {
		if err := m.put("", k); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s after the exit: %v", k, err)
		}
	}
	_ = m.put("e", EventExecStarted)
	_ = m.put("", EventDeleted)
	m.expect(t, "exited", "deleted")
}

func TestOnlyTheFirstOfTwoExitsIsPublished(t *testing.T) {
	m := newMailbox()
	_ = m.put("", EventCreated)
	_ = m.lanes[""].begin(admitted)
	_ = m.put("", EventExited, EventExited)
	_ = m.put("", EventStarted, EventExited)
	m.expect(t, "created", "started", "exited")
}

func TestAnEventThatTheStateDoesNotAllowChangesNothing(t *testing.T) {
	m := running()
	refused := errors.New("deliberate")
	m.fail = refused
	if err := m.put("", EventPaused); !errors.Is(err, refused) {
		t.Errorf("pause: %v", err)
	}
	m.fail = refused
	_ = m.put("", EventExited)
	_ = m.put("", EventExited)
	m.expect(t, "exited")
}

// The order of events does not depend on the order in which they happen.
func TestTheOrderHoldsWhenAllComesAtOnce(t *testing.T) {
	for range 100 {
		execs := []ExecID{"e0", "e1", "e2", "e3"}
		m := running(execs...)
		for _, id := range execs {
			_ = m.lanes[id].begin(admitted)
		}
		var all sync.WaitGroup
		for i, id := range execs {
			all.Go(func() {
				if i == 0 {
					m.lanes[id].unstart()
					return
				}
				_ = m.put(id, EventExecStarted)
			})
			all.Go(func() { _ = m.put(id, EventExited) })
		}
		all.Go(func() { _ = m.put("", EventOOM, EventExited) })
		all.Wait()
		if len(m.words) == 0 || m.words[len(m.words)-1] != "exited" {
			t.Fatalf("the exit of the app is not the last: %v", m.words)
		}
		for _, id := range execs[1:] {
			start, end := slices.Index(m.words, fmt.Sprint("exec-started/", id)), slices.Index(m.words, fmt.Sprint("exited/", id))
			if start < 0 || end < start {
				t.Errorf("exec %s: %v", id, m.words)
			}
		}
		if slices.Contains(m.words, "exited/e0") || slices.Index(m.words, "oom") < 0 {
			t.Errorf("%v", m.words)
		}
	}
}
