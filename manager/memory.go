package manager

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// releaseDelay is the shortest time between a call and the release of its garbage.
	releaseDelay = 3 * time.Second
	// releaseInterval is the shortest time between two releases: each costs a garbage
	// collection.
	releaseInterval = 30 * time.Second
)

// limitMemory makes the Go runtime collect garbage only when there is more than 4 MB of
// heap, which a server rarely has: memory.touch releases the garbage of a call soon
// after it. Fewer collections also need less memory, because each of the first few
// makes the Go runtime keep up to half a megabyte of lists of spans.
func limitMemory() {
	debug.SetGCPercent(100)
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2)
	}
}

// memory returns freed memory to the kernel soon after a call. A server without calls
// has no running timer.
type memory struct {
	release func()

	mu     sync.Mutex
	timer  *time.Timer // nil until the first call
	armed  bool
	last   time.Time // of the last release
	closed bool
}

func newMemory() *memory { return &memory{release: debug.FreeOSMemory} }

// touch schedules a release. It is called with every call.
func (m *memory) touch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.armed || m.closed {
		return
	}
	m.armed = true
	after := max(releaseDelay, releaseInterval-time.Since(m.last))
	if m.timer == nil {
		m.timer = time.AfterFunc(after, m.expire)
	} else {
		m.timer.Reset(after)
	}
}

func (m *memory) expire() {
	m.mu.Lock()
	m.armed, m.last = false, time.Now()
	closed := m.closed
	m.mu.Unlock()
	if !closed {
		m.release()
	}
}

func (m *memory) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.timer != nil {
		m.timer.Stop()
	}
}
