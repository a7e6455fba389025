package manager

import "time"

// orphanPatience is how long a server waits for the daemon that asked for it.
const orphanPatience = 5 * time.Minute

// orphanWatch notices that the daemon died between the answer of `start` and its
// first Create: it will not come back to a server that it never heard of. Once a
// container was created it is the daemon's to delete, however long it is away.
type orphanWatch struct {
	conns *conns
	calls *calls
	timer *time.Timer
	armed bool
}

func newOrphanWatch(conns *conns, calls *calls) *orphanWatch {
	return &orphanWatch{conns: conns, calls: calls, timer: time.NewTimer(orphanPatience), armed: true}
}

// update follows a change of the number of connections and tells whether nobody
// is to be expected.
func (o *orphanWatch) update() (lonely bool) {
	lonely = o.conns.count() == 0 && !o.calls.anyCreated()
	if lonely == o.armed {
		return lonely
	}
	if o.armed = lonely; lonely {
		o.timer.Reset(orphanPatience)
	} else {
		o.timer.Stop()
	}
	return lonely
}

// alone delivers something when it has been so for orphanPatience.
func (o *orphanWatch) alone() <-chan time.Time { return o.timer.C }

func (o *orphanWatch) stop() { o.timer.Stop() }
