package manager

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// releaseDelay is how long after a call its garbage is given back, at the earliest.
	releaseDelay = 3 * time.Second
	// releaseInterval is between two releases: each costs a garbage collection.
	releaseInterval = 30 * time.Second
)

// limitMemory sets when a server collects garbage by itself: beyond 4 MB of heap,
// which it hardly ever has, because what is left of a call goes soon after it
// (memory.touch). Fewer collections are less memory, too: each of the first few
// makes the runtime keep up to half a megabyte of lists of spans.
func limitMemory() {
	debug.SetGCPercent(100)
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2)
	}
}

// memory returns what was freed to the kernel soon after there was something to
// do. A server without calls has no timer.
type memory struct {
	release func()

	mu     sync.Mutex
	timer  *time.Timer // nil until the first call
	armed  bool
	last   time.Time // of the last release
	closed bool
}

func newMemory() *memory { return &memory{release: debug.FreeOSMemory} }

// touch says that memory has been used.
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
