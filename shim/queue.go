package shim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/log"

	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// maxQueued bounds the events that are kept while containerd is down. At a few
// hundred bytes each they take some ten megabytes. In a pod whose probes make four events
// a second, that lasts for more than two hours. When the queue is full, the oldest event is
// dropped, with a line in the log.
const maxQueued = 32768

// Waits between attempts to deliver an event. Each is twice as long as the one before, up
// to lastRetry.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 3 * time.Second
)

// queue delivers events one at a time, in the order in which they were put, and repeats
// each until containerd has accepted it (requirements.md#E1 to requirements.md#E4). An
// empty queue costs one sleeping goroutine.
type queue struct {
	forwarder *forwarder
	ctx       context.Context // ended when the queue gives up delivery
	cancel    context.CancelFunc
	wake      chan struct{} // capacity 1: look at the queue again
	stopped   chan struct{}

	mu      sync.Mutex
	waiting []*types.Envelope // the first one is being delivered
	closed  bool              // stop once it is empty
}

func newQueue(f *forwarder) *queue {
	ctx, cancel := context.WithCancel(context.Background())
	q := &queue{
		forwarder: f,
		ctx:       ctx,
		cancel:    cancel,
		wake:      make(chan struct{}, 1),
		stopped:   make(chan struct{}),
	}
	go q.run()
	return q
}

// put appends an event. It never blocks.
func (q *queue) put(e *types.Envelope) {
	select {
	case <-q.stopped:
		log.L.Errorf("event %s comes after the end of the queue, and containerd does not get it", e.Topic)
	default:
	}
	dropped := q.append(e)
	if dropped != nil {
		log.L.Errorf("containerd has not taken %d events: the oldest is dropped: %s of %s", maxQueued, dropped.Topic, dropped.Timestamp.AsTime())
	}
	q.look()
}

func (q *queue) append(e *types.Envelope) (dropped *types.Envelope) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == maxQueued {
		// Keep the first event: it may be on its way at this moment.
		dropped = q.waiting[1]
		q.waiting = append(q.waiting[:1], q.waiting[2:]...)
	}
	q.waiting = append(q.waiting, e)
	return dropped
}

func (q *queue) look() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// close delivers the queued events until ctx is done, and stops the queue. The error says
// how many events were not delivered, also of those that were put after an earlier close.
// close may be called more than once.
func (q *queue) close(ctx context.Context) error {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.look()
	select {
	case <-q.stopped:
	case <-ctx.Done():
		q.cancel()
		<-q.stopped
	}
	q.cancel()
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.waiting)
	switch err := context.Cause(ctx); {
	case n == 0:
		return nil
	case err == nil:
		return fmt.Errorf("%d events came after the end of the queue", n)
	default:
		return fmt.Errorf("%d events were not delivered: %w", n, err)
	}
}

func (q *queue) run() {
	defer close(q.stopped)
	defer q.forwarder.close()
	for {
		e, closed := q.first()
		if e == nil {
			if closed {
				return
			}
			select {
			case <-q.wake:
			case <-q.ctx.Done():
				return
			}
			continue
		}
		if !q.deliver(e) {
			return
		}
		q.taken()
	}
}

// first returns the oldest event, or nil.
func (q *queue) first() (e *types.Envelope, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.waiting = nil // frees the array
		return nil, q.closed
	}
	return q.waiting[0], q.closed
}

// taken removes the oldest event.
func (q *queue) taken() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
}

// deliver tries until containerd has accepted the event or has refused it for good. It
// returns false if the queue has given up before.
func (q *queue) deliver(e *types.Envelope) bool {
	wait := firstRetry
	for failures := 0; ; failures++ {
		err := q.forwarder.forward(q.ctx, e)
		switch {
		case err == nil:
			return true
		case q.ctx.Err() != nil:
			return false
		case refusedForGood(err):
			log.L.WithError(err).Errorf("containerd refuses the event %s: it is dropped", e.Topic)
			return true
		case failures == 0:
			log.L.WithError(err).Warnf("event %s cannot be delivered: trying until it can", e.Topic)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-q.ctx.Done():
			timer.Stop()
			return false
		}
		wait = min(2*wait, lastRetry)
	}
}
