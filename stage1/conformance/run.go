package conformance

import (
	"context"
	"errors"
	"time"
)

// Outcome is the result of a check.
type Outcome string

// The outcomes.
const (
	Passed Outcome = "passed"
	Failed Outcome = "failed"
	// Absent means that the stage1 does not declare the checked feature, or reports that it
	// cannot provide it on this machine. The stage1 then misses a level only if the level
	// demands the feature.
	Absent Outcome = "absent"
)

// Reason is one word that says why a check was not run to its end.
type Reason string

// The reasons.
const (
	// Undeclared means that the features document lacks a field that the check asks for.
	Undeclared Reason = "undeclared"
	// Excused means that the operator lets the stage1 ignore such a field.
	Excused Reason = "excused"
	// Owned means that the stage1 does by itself what the check looks at on the host.
	Owned Reason = "owned"
	// NoSocket means that the stage1 answers no call on a socket.
	NoSocket Reason = "socket"
	// NoEntrypoint means that the image lacks an entrypoint.
	NoEntrypoint Reason = "entrypoint"
	// Immutable means that pods of the stage1 have one app.
	Immutable Reason = "immutable"
	// Refused means that the stage1 reports that it cannot do something that it declares.
	Refused Reason = "refused"
	// NoMachine means that the machine or its kernel lacks something.
	NoMachine Reason = "machine"
	// Invisible means that nothing shows whether a field is honoured.
	Invisible Reason = "invisible"
	// FailedCheck means that the check of a field has failed.
	FailedCheck Reason = "failed"
	// NotRun means that the check of a field was not selected.
	NotRun Reason = "unselected"
)

// Result is a check and its outcome.
type Result struct {
	Check
	Outcome  Outcome
	Reason   Reason // the reason for which it is absent
	Words    string // why the check failed, or which feature is absent
	Duration time.Duration
	Notes    map[string]string
	Kept     string // the directory of its files, if it has failed and Keep is set
}

// breaks reports whether the stage1 misses the check's level because of this result. An
// immutable image is complete without features that only mutable ones can have.
func (r *Result) breaks() bool {
	return r.Outcome == Failed || r.Outcome == Absent && r.demanded && r.Reason != Immutable
}

func (k *Kit) check(ctx context.Context, c Check) Result {
	r := Result{Check: c, Outcome: Passed}
	if why, words := c.absent(k); why != "" {
		r.Outcome, r.Reason, r.Words = Absent, why, words
		return r
	}
	began := time.Now()
	notes, kept, err := k.attempt(ctx, &c)
	r.Duration, r.Notes, r.Kept = time.Since(began), notes, kept
	var cannot *cannotError
	var absent *absentError
	switch {
	case errors.As(err, &cannot):
		r.Outcome, r.Reason, r.Words = Absent, Refused, err.Error()
	case errors.As(err, &absent):
		r.Outcome, r.Reason, r.Words = Absent, absent.reason, absent.words
	case err != nil:
		r.Outcome, r.Words = Failed, err.Error()
	}
	return r
}

// absentError is the error of a check that finds out that there is nothing to check.
type absentError struct {
	reason Reason
	words  string
}

func (e *absentError) Error() string { return e.words }

// LevelOf returns the highest level for which no result breaks this level or a lower one.
func LevelOf(results []Result) Level {
	level := Level(Levels)
	for i := range results {
		if results[i].breaks() {
			level = min(level, results[i].Level-1)
		}
	}
	return level
}
