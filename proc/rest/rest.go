// Package rest gives memory back to the kernel when a process is at rest after some work.
// There is a server and a supervisor for every pod, and both have nothing to do most of the
// time.
//
// A garbage collection costs memory, too: for each size of objects the Go runtime makes lists
// that it never frees, 0.6 MB in the first collections of a server. So memory is only given
// back if the process has grown by more than that may cost.
//
// A process at rest does not need the pages of its program either, of which most are mapped
// after its start, because the kernel maps sixteen at a time. They are unmapped. They stay in
// the page cache, from which the kernel maps those that are used again.
package rest

import (
	"runtime/debug"
	"sync"
	"time"
)

const (
	// delay is the shortest time between some work and a look at the memory.
	delay = 3 * time.Second
	// interval is the shortest time between two looks at the memory.
	interval = 30 * time.Second
)

// Memory gives back the memory of a process. A process without work has no running timer.
type Memory struct {
	growth  int
	survey  func() (survey, error)
	release func()

	mu     sync.Mutex
	timer  *time.Timer // nil until the first work
	armed  bool
	last   time.Time // of the last look
	size   int       // bytes of anonymous memory after the last release
	closed bool
}

// NewMemory returns the Memory of a process. size is the number of bytes of anonymous memory
// that the process has with its first app, and growth is the number of bytes by which it may
// grow before memory is given back.
func NewMemory(size, growth int) *Memory {
	return &Memory{size: size, growth: growth, survey: takeSurvey, release: debug.FreeOSMemory}
}

// Touch is to be called with each piece of work. It schedules a look at the memory.
func (m *Memory) Touch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.armed || m.closed {
		return
	}
	m.armed = true
	after := max(delay, interval-time.Since(m.last))
	if m.timer == nil {
		m.timer = time.AfterFunc(after, m.look)
	} else {
		m.timer.Reset(after)
	}
}

func (m *Memory) look() {
	m.mu.Lock()
	m.armed, m.last = false, time.Now()
	closed, bound := m.closed, m.size+m.growth
	m.mu.Unlock()
	if closed {
		return
	}
	// runtime.ReadMemStats would not do: it makes the lists that a garbage collection makes, and
	// does not count what is free and not given back.
	now, err := m.survey()
	if err != nil || now.anonymous > bound {
		m.release()
		if now, err = m.survey(); err == nil {
			m.mu.Lock()
			m.size = now.anonymous
			m.mu.Unlock()
		}
	}
	now.unmap()
}

// Stop ends it: nothing is given back any more.
func (m *Memory) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.timer != nil {
		m.timer.Stop()
	}
}
