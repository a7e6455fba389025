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
	// cannot do it on this machine. The stage1 then misses a level only if the level demands
	// the feature.
	Absent Outcome = "absent"
)

// Result is a check and its outcome.
type Result struct {
	Check
	Outcome  Outcome
	Words    string // why the check failed, or what is absent
	Duration time.Duration
	Notes    map[string]string
}

// breaks reports whether the stage1 misses the check's level because of this result.
func (r *Result) breaks() bool { return r.Outcome == Failed || r.Outcome == Absent && r.demanded }

// Run runs checks, one after the other, and calls told after each. If ctx is done, it undoes
// the running check and returns early.
func (k *Kit) Run(ctx context.Context, checks []Check, begin func(Check), told func(Result)) ([]Result, error) {
	var all []Result
	for _, c := range checks {
		if ctx.Err() != nil {
			return all, context.Cause(ctx)
		}
		begin(c)
		r := k.check(ctx, c)
		if ctx.Err() != nil { // the check may have failed for that reason
			return all, context.Cause(ctx)
		}
		all = append(all, r)
		told(r)
	}
	return all, nil
}

func (k *Kit) check(ctx context.Context, c Check) Result {
	r := Result{Check: c, Outcome: Passed}
	if why := c.absent(k); why != "" {
		r.Outcome, r.Words = Absent, why
		if c.mutable && !k.mutable() { // an immutable image is complete without it
			r.demanded = false
		}
		return r
	}
	began := time.Now()
	notes, err := k.attempt(ctx, &c)
	r.Duration, r.Notes = time.Since(began), notes
	var cannot *cannotError
	switch {
	case errors.As(err, &cannot):
		r.Outcome, r.Words = Absent, err.Error()
	case err != nil:
		r.Outcome, r.Words = Failed, err.Error()
	}
	return r
}

// LevelOf returns the highest level that no result breaks, neither it nor a level below
// it.
func LevelOf(results []Result) Level {
	level := Level(Levels)
	for i := range results {
		if results[i].breaks() {
			level = min(level, results[i].Level-1)
		}
	}
	return level
}
