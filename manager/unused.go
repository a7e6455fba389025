package manager

import "time"

// unusedLimit is how long a server without a container waits for a client.
const unusedLimit = 5 * time.Minute

// unusedWatch ends a server whose containerd ended after it had called `start` and before
// its first Create: after its restart, containerd does not know of such a server.
// unusedWatch never ends a server that has had a container, because containerd will
// delete the container, however long its restart takes.
type unusedWatch struct {
	conns *conns
	calls *calls
	timer *time.Timer
	armed bool
}

func newUnusedWatch(conns *conns, calls *calls) *unusedWatch {
	return &unusedWatch{conns: conns, calls: calls, timer: time.NewTimer(unusedLimit), armed: true}
}

// update is called after every change of the number of connections. It reports whether
// the server has no connection and never had a container.
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

// expired returns the channel that receives a time when the server has been unused for
// unusedLimit.
func (w *unusedWatch) expired() <-chan time.Time { return w.timer.C }

func (w *unusedWatch) stop() { w.timer.Stop() }
