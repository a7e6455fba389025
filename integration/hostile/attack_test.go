package hostile

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"
)

// attack is a class of escapes, tried in some modes.
type attack struct {
	// classes are the CVEs whose class it is.
	classes string
	// name says what the attacker does.
	name  string
	modes []mode
}

// mode is a way to try an attack.
type mode struct {
	name string
	try  func(l *lab)
	// notFor says why a column cannot be attacked so, and is empty or nil otherwise.
	notFor func(c *column) string
	// proofs are columns in which it has to win, in the long form.
	proofs []string
	// unproved is why there are none.
	unproved string
	// wins is why some loot is got in a column where that is known, and no defect of ours;
	// it is empty for any other.
	wins func(c *column, loot string) string
	// rare modes are variants of others, and of the long form only.
	rare bool
	// alone is for attackers that see the processes of all columns.
	alone bool
	// order is the place in the document.
	order int
}

// hostile tries an attack in all its modes against all columns.
func hostile(t *testing.T, a attack) {
	t.Helper()
	if why := missing(); why != "" {
		t.Skip(why)
	}
	found.place(a.modes)
	for _, m := range a.modes {
		if m.alone {
			t.Run(m.name, func(t *testing.T) { a.tried(t, m) })
		}
	}
	t.Parallel() // nothing alone is at work any more
	for _, m := range a.modes {
		if !m.alone {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				a.tried(t, m)
			})
		}
	}
}

// tried tries one mode against all columns.
func (a attack) tried(t *testing.T, m mode) {
	t.Helper()
	if len(m.proofs) == 0 && m.unproved == "" {
		t.Error("nothing shows that this attack is real, and nothing says why not")
	}
	if m.rare && !long {
		t.Skip("the long form has it")
	}
	for _, c := range columns {
		if !c.takesPart(m) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if !m.alone {
				t.Parallel()
			}
			a.against(t, m, c)
		})
	}
}

// takesPart reports whether a mode is tried against a column: in the short form against
// ours only.
func (c *column) takesPart(m mode) bool {
	return c.role == ours || long && (c.role == oracle || slices.Contains(m.proofs, c.name))
}

// against tries one mode against one column.
func (a attack) against(t *testing.T, m mode, c *column) {
	t.Helper()
	r := &result{Classes: a.classes, Attack: a.name, Mode: m.name, Column: c.name, Proofs: m.proofs, Unproved: m.unproved, order: m.order}
	defer found.add(r)
	if r.NotTried = c.unavailable(); r.NotTried == "" && m.notFor != nil {
		r.NotTried = m.notFor(c)
	}
	if r.NotTried != "" {
		t.Skip(r.NotTried)
	}
	n, err := c.take()
	if err != nil {
		t.Fatalf("start containerd: %v", err)
	}
	// What is there to end at the end of a try needs a context that still lives.
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.Background(), n.daemon.Namespace()), time.Hour)
	l := &lab{node: n, t: t, ctx: ctx, result: r}
	t.Cleanup(func() {
		cancel()
		for _, left := range l.outside() {
			t.Error(left)
		}
		l.judge(m)
		if t.Failed() {
			t.Logf("the daemon's log ends with:\n%s", n.daemon.LogTail(15))
		}
		n.release()
	})
	m.try(l)
}

// judge compares what was won with what may be.
func (l *lab) judge(m mode) {
	l.t.Helper()
	r := l.result
	for _, loot := range r.Loot {
		reason := ""
		if m.wins != nil {
			reason = m.wins(l.column, loot)
		}
		if reason != "" {
			r.Reason = reason
		} else if l.role == ours {
			l.t.Errorf("the attack wins in %d of %d tries: %s", r.Wins, r.Tries, loot)
		}
	}
	switch {
	case r.Tries == 0 && !l.t.Failed():
		l.t.Error("nothing was tried")
	case l.role == proof && r.Wins == 0:
		l.t.Errorf("the attack does not win against %s in %d tries, of which %d were refused: it is not real", l.name, r.Tries, r.Refused)
	}
	l.t.Logf("%d tries, %d wins, %d refused", r.Tries, r.Wins, r.Refused)
}
