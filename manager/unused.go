package manager

import "time"

// unusedLimit is how long a server waits for the daemon that asked for it.
const unusedLimit = 5 * time.Minute

// unusedWatch notices that the daemon died between the answer of `start` and its
// first Create: it will not come back to a server that it never heard of. Once a
// container was created it is the daemon's to delete, however long it is away.
type unusedWatch struct {
	conns *conns
	calls *calls
	timer *time.Timer
	armed bool
}

func newUnusedWatch(conns *conns, calls *calls) *unusedWatch {
	return &unusedWatch{conns: conns, calls: calls, timer: time.NewTimer(unusedLimit), armed: true}
}

// update follows a change of the number of connections and tells whether nobody
// is to be expected.
func (w *unusedWatch) update() (unused bool) {
	unused = w.conns.count() == 0 && !w.calls.anyCreated()
	if unused == w.armed {
		return unused
	}
	if w.armed = unused; unused {
		w.timer.Reset(unusedLimit)
	} else {
		w.timer.Stop()
	}
	return unused
}

// expired delivers something when it has been so for unusedLimit.
func (w *unusedWatch) expired() <-chan time.Time { return w.timer.C }

func (w *unusedWatch) stop() { w.timer.Stop() }
