package disk

import "time"

// CollectedExit is how a collected container ended.
type CollectedExit struct {
	PID   int
	Code  uint32
	At    time.Time
	Found bool // there was a container of ours to collect
	// Rest is what Finish has to be called with because Collect has not seen the end
	// of the container, or of its pod. It is empty if there is nothing to finish.
	Rest string
}

// collected is what was found out by an earlier call that did not finish.
func (e *exitRecord) collected() CollectedExit {
	if e == nil {
		return CollectedExit{}
	}
	return CollectedExit{PID: e.PID, Code: e.Code, At: e.At, Found: true}
}

// record is the inverse of collected.
func (e CollectedExit) record() *exitRecord {
	if !e.Found {
		return nil
	}
	return &exitRecord{PID: e.PID, Code: e.Code, At: e.At}
}
