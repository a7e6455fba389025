package proc

import (
	"os"
	"testing"
)

// noPID is higher than any pid.
const noPID = 1 << 30

// A pod of ten thousand execs makes ten thousand such calls.
func TestAdoptLaterLooksAtAFewProcessesAndForgetsAllInTime(t *testing.T) {
	c := &Children{owned: map[int]*Child{}, later: map[int]*later{}}
	const many = 10000
	for i := range many { // as if all had been alive until now
		l := &later{pid: noPID + i}
		c.later[l.pid], c.laterInTurn = l, append(c.laterInTurn, l)
	}
	cancel := c.AdoptLater(os.Getpid(), 1, nil, nil)
	if gone := many + 1 - len(c.later); gone != lookedAt {
		t.Errorf("one call has looked at %d processes, want %d", gone, lookedAt)
	}
	for i := range many + 100 {
		c.AdoptLater(noPID+many+i, 1, nil, nil)
	}
	if c.later[os.Getpid()] == nil {
		t.Error("a process that lives is forgotten")
	}
	if n := max(len(c.later), len(c.laterInTurn)); n > 2*lookedAt {
		t.Errorf("%d processes are remembered, and one of them lives", n)
	}
	if !cancel() || c.later[os.Getpid()] != nil {
		t.Error("a cancelled process is remembered")
	}
}
