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
	// classes are the CVEs of the attack's class.
	classes string
	// name describes the attack.
	name  string
	modes []mode
}

// mode is a variant of an attack.
type mode struct {
	name string
	try  func(l *lab)
	// notFor returns the reason why a column cannot be attacked in this mode, or an empty
	// string. It may be nil.
	notFor func(c *column) string
	// proofs are columns in which the attack must succeed, in the long form.
	proofs []string
	// unproved is the reason why there are none.
	unproved string
	// wins returns the reason why an attack is known to get some loot in a column, without a
	// defect of ours. For any other loot it returns an empty string.
	wins func(c *column, loot string) string
	// compared modes record verdicts, which are compared with those in a container of runc's.
	compared bool
	// rare modes are variants of other modes, and run in the long form only.
	rare bool
	// alone is for attackers that see the processes of all columns. No other attack runs
	// meanwhile.
	alone bool
	// users is set if the attack needs user namespaces.
	users bool
	// ownMachine is set if the attack makes a pod of its own.
	ownMachine bool
	// order is the place in the document.
	order int
}

// hostile tries all modes of an attack against all columns.
func hostile(t *testing.T, a attack) {
	t.Helper()
	if why := missing(); why != "" {
		t.Skip(why)
	}
	found.place(a)
	for _, m := range a.modes {
		if m.alone {
			t.Run(m.name, func(t *testing.T) { a.tried(t, m) })
		}
	}
	t.Parallel() // all attacks that run alone have ended
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
	if m.rare && !long && !(m.compared && comparing) {
		t.Skip("the long form has it")
	}
	for _, c := range columns {
		if !c.takesPart(m) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if !m.alone && !(m.compared && c.role == oracle) {
				t.Parallel() // the columns that are compared wait for the oracle
			}
			a.against(t, m, c)
		})
	}
}

// takesPart reports whether a mode is tried against a column. The short form tries only ours, unless runc is
// asked for.
func (c *column) takesPart(m mode) bool {
	return c.role == ours || comparing && c.role == oracle || long && slices.Contains(m.proofs, c.name)
}

// against tries one mode against one column.
func (a attack) against(t *testing.T, m mode, c *column) {
	t.Helper()
	r := &result{Classes: a.classes, Attack: a.name, Mode: m.name, Column: c.name, Proofs: m.proofs, Unproved: m.unproved, order: m.order}
	defer found.add(r)
	if r.NotTried = c.unavailable(); r.NotTried == "" && m.users {
		r.NotTried = noUserNamespaces(c)
	}
	if r.NotTried == "" && m.notFor != nil {
		r.NotTried = m.notFor(c)
	}
	if r.NotTried != "" {
		t.Skip(r.NotTried)
	}
	n, err := c.take()
	if err != nil {
		t.Fatalf("start containerd: %v", err)
	}
	// The cleanups at the end of a try need a context that has not ended.
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
	if l.ofMachines() && !m.ownMachine {
		// It keeps the machine, so that not every victim boots one.
		l.machine = "machine-" + l.id()
		keeper := sleeper()
		if m.users { // a machine has those of its first container
			keeper = sleeper(userNamespace())
		}
		l.attacker(keeper)
	}
	m.try(l)
}

// judge compares the loot with the loot that is expected.
func (l *lab) judge(m mode) {
	l.t.Helper()
	r := l.result
	if m.compared {
		l.compareWithRunc()
		return
	}
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
