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
	// delay is the time without work after which a process is at rest.
	delay = 3 * time.Second
	// interval is the shortest time between two looks at the memory, and the longest time
	// from some work to a look if the process does not come to rest.
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
	first  time.Time // of the first work after the last look, if armed
	due    time.Time // of the next look, if armed
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

// Touch is to be called with each piece of work. It schedules a look at the memory for the time
// when the process is at rest: a look in the middle of the work would collect garbage twice.
func (m *Memory) Touch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	now := time.Now()
	if !m.armed {
		m.armed, m.first = true, now
	}
	after := max(min(delay, m.first.Add(interval).Sub(now)), m.last.Add(interval).Sub(now))
	m.due = now.Add(after)
	if m.timer == nil {
		m.timer = time.AfterFunc(after, m.look)
	} else {
		m.timer.Reset(after)
	}
}

func (m *Memory) look() {
	m.mu.Lock()
	now, bound := time.Now(), m.size+m.growth
	if m.closed || !m.armed || now.Before(m.due) { // the timer had expired when Touch reset it
		m.mu.Unlock()
		return
	}
	m.armed, m.last = false, now
	m.mu.Unlock()
	// runtime.ReadMemStats would not do: it makes the lists that a garbage collection makes, and
	// does not count what is free and not given back.
	s, err := m.survey()
	if err != nil || s.anonymous > bound {
		m.release()
		if s, err = m.survey(); err == nil {
			m.mu.Lock()
			m.size = s.anonymous
			m.mu.Unlock()
		}
	}
	s.unmap()
}

// Stop stops the timer. After Stop no memory is given back.
func (m *Memory) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.timer != nil {
		m.timer.Stop()
	}
}
