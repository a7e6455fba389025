package view

import (
	"cmp"
	"slices"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
)

// Event is something that has happened to a pod: a call of an entrypoint, or a change of the
// state of the pod or of one of its apps.
type Event struct {
	Time time.Time `json:"time"` // of a change whose time is not on record: when it was seen
	Pod  string    `json:"pod"`  // UUID
	ID   string    `json:"id,omitempty"`
	App  string    `json:"app,omitempty"`  // id, or name
	Exec string    `json:"exec,omitempty"` // id
	// State is the new state of the exec, the app or else the pod. It is empty if Call is
	// not nil.
	State string         `json:"state,omitempty"`
	Exit  *Exit          `json:"exit,omitempty"`
	Call  *journal.Entry `json:"call,omitempty"`
}

// Further states of events.
const (
	// StateRemoved: nothing is left of the app or pod.
	StateRemoved = "removed"
	// StateStarted: the app's program was started.
	StateStarted = "started"
	// StateResumed: the app is not paused any more.
	StateResumed = "resumed"
)

// Events finds the events between readings of pods. The zero value has seen nothing. The
// caller closes it.
type Events struct {
	node *Node
	pods map[string]*followed // by UUID
}

// followed is a pod whose events were returned up to a reading.
type followed struct {
	pod     *Pod
	facts   map[fact]bool
	ids     map[string]string // of apps, by their names: also of those that are removed
	journal *journal.Follower
}

// fact is an event whose time is on record. Its key does not have the time, which a record
// may have in different precisions.
type fact struct{ app, exec, state string }

// Events returns the events of pods of this node.
func (n *Node) Events() *Events { return &Events{node: n, pods: map[string]*followed{}} }

// Close closes the journals.
func (e *Events) Close() {
	for _, f := range e.pods {
		f.close()
	}
}

func (f *followed) close() {
	if f.journal != nil {
		_ = f.journal.Close()
	}
}

// Update returns the events since the last reading of pods, in the order of their times. The
// first time it returns those that are on record. A record does not have all changes of
// states: these are seen only between two readings. Apps that are being removed get the ids that
// they had in earlier readings.
func (e *Events) Update(pods []*Pod) ([]Event, error) {
	var events []Event
	there := map[string]bool{}
	for _, p := range pods {
		there[p.UUID] = true
		f := e.pods[p.UUID]
		if f == nil {
			f = &followed{facts: map[fact]bool{}, ids: map[string]string{}}
			e.pods[p.UUID] = f
			if dir, _, err := e.node.files.Open(p.UUID); err == nil {
				f.journal = journal.Follow(dir)
			}
		}
		events = append(events, f.update(p)...)
	}
	now := time.Now()
	for uuid, f := range e.pods {
		if !there[uuid] {
			// The files stay open, so the last calls can still be read.
			events = append(events, f.calls()...)
			events = append(events, Event{Time: now, Pod: uuid, ID: f.pod.Sandbox, State: StateRemoved})
			f.close()
			delete(e.pods, uuid)
		}
	}
	slices.SortStableFunc(events, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return events, nil
}

// update returns the events of a pod, and remembers it.
func (f *followed) update(p *Pod) []Event {
	before := f.pod
	f.pod = p
	for i := range p.Apps {
		a := &p.Apps[i]
		if a.ID == "" { // while an app is being removed, its files no longer have its id
			a.ID = f.ids[a.Name]
		}
		f.ids[a.Name] = a.ID
	}
	var events []Event
	for _, x := range onRecord(p) {
		key := fact{x.App, x.Exec, x.State}
		if !f.facts[key] {
			f.facts[key] = true
			events = append(events, x)
		}
	}
	if before != nil {
		events = append(events, changes(before, p)...)
	}
	return append(events, f.calls()...)
}

// calls returns the calls that the journal has got since. A journal that cannot be read has
// none.
func (f *followed) calls() []Event {
	if f.journal == nil {
		return nil
	}
	entries, _ := f.journal.Next()
	var events []Event
	for i := range entries {
		x := &entries[i]
		app := cmp.Or(f.ids[x.App], x.App)
		events = append(events, Event{
			Time: x.Time.Add(time.Duration(x.Millis * float64(time.Millisecond))),
			Pod:  f.pod.UUID, ID: f.pod.Sandbox, App: app, Exec: x.Exec, Call: x,
		})
	}
	return events
}

// onRecord returns the events of a pod whose times are on record.
func onRecord(p *Pod) []Event {
	var events []Event
	add := func(at time.Time, app, exec, state string, exit *Exit) {
		if !at.IsZero() {
			events = append(events, Event{Time: at, Pod: p.UUID, ID: p.Sandbox, App: app, Exec: exec, State: state, Exit: exit})
		}
	}
	add(p.Created, "", "", "created", nil)
	for _, a := range p.Apps {
		id := cmp.Or(a.ID, a.Name)
		add(a.Created, id, "", string(AppCreated), nil)
		add(a.Started, id, "", StateStarted, nil)
		if a.Exit != nil {
			add(a.Exit.Time, id, "", string(AppExited), a.Exit)
		}
		for _, e := range a.Execs {
			add(e.Exit.Time, id, e.ID, string(AppExited), &e.Exit)
		}
	}
	return events
}

// changes returns the changes of states between two readings of a pod that are not on record.
func changes(before, p *Pod) []Event {
	var events []Event
	now := time.Now()
	add := func(app, state string) {
		events = append(events, Event{Time: now, Pod: p.UUID, ID: p.Sandbox, App: app, State: state})
	}
	for _, b := range before.Apps {
		id := cmp.Or(b.ID, b.Name)
		i := slices.IndexFunc(p.Apps, func(a App) bool { return a.Name == b.Name })
		if i < 0 {
			add(id, StateRemoved)
			continue
		}
		switch a := p.Apps[i]; {
		case a.State == b.State:
		case a.State == AppRunning && b.State == AppPaused:
			add(id, StateResumed)
		case a.State == AppPaused, a.State == AppAbandoned, a.State == AppDeleting, a.State == AppExited && a.Exit == nil:
			add(id, string(a.State))
		}
	}
	if p.State != before.State {
		add("", string(p.State))
	}
	return events
}
