package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// perProcessor is the number of checks that run concurrently for each processor. Checks
// wait most of the time.
const perProcessor = 2

// mostPace is the largest value of Pace, because a check that hangs must end.
const mostPace = 6

// Pace returns the factor by which the kit waits longer than on an idle machine. It is the
// number of processes that want a processor, divided by the number of processors, from 1 to
// 6.
func Pace() time.Duration {
	text, _ := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(text), " ")
	n, _ := strconv.ParseFloat(load, 64)
	return time.Duration(min(mostPace, max(1, n/float64(runtime.NumCPU()))))
}

// round is one call of Run.
type round struct {
	checks []Check
	begin  func(Check)
	told   func(Result)

	mu      sync.Mutex
	next    int                // index of the first check that no worker has taken
	results map[int]Result     // by the index of the check
	ended   int                // number of results that were passed to told
	stop    context.CancelFunc // ends the round before all checks were run
	err     error              // of a worker
}

// Run runs checks concurrently. It calls the function begin before each check, and passes
// each result to the function told, in the order of the checks. The two are never called at
// the same time. If ctx is done, Run undoes the running checks and returns early, with the
// results that were passed to told.
func (k *Kit) Run(ctx context.Context, checks []Check, begin func(Check), told func(Result)) ([]Result, error) {
	limit, stop := context.WithCancel(ctx)
	defer stop()
	r := &round{checks: checks, begin: begin, told: told, results: map[int]Result{}, stop: stop}
	var workers sync.WaitGroup
	for range min(perProcessor*runtime.NumCPU(), len(checks)) {
		workers.Go(func() { r.fail(ctx, k.run(limit, r)) })
	}
	workers.Wait()
	var all []Result
	for i := range r.ended {
		all = append(all, r.results[i])
	}
	if ctx.Err() != nil {
		return all, context.Cause(ctx)
	}
	return all, r.err
}

// run runs checks of a round in one worker process, until no check is left.
func (k *Kit) run(ctx context.Context, r *round) error {
	w, err := k.startWorker()
	if err != nil {
		return err
	}
	hangUp := context.AfterFunc(ctx, func() { _ = w.in.Close() })
	defer hangUp()
	for {
		i, some := r.take(ctx)
		if !some {
			return w.end()
		}
		result, err := w.check(r.checks[i])
		if err != nil {
			return errors.Join(err, w.end())
		}
		r.tell(ctx, i, result)
	}
}

// take returns the index of a check that no worker has taken, if there is one.
func (r *round) take(ctx context.Context) (i int, some bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil || r.next == len(r.checks) {
		return 0, false
	}
	r.next++
	r.begin(r.checks[r.next-1])
	return r.next - 1, true
}

// tell stores a result, and passes the results whose turn it is to the function told.
func (r *round) tell(ctx context.Context, i int, result Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results[i] = result
	for ctx.Err() == nil { // after ctx is done, checks fail for that reason
		next, there := r.results[r.ended]
		if !there {
			return
		}
		r.ended++
		r.told(next)
	}
}

// fail ends the round because of a worker's error. It ignores errors after ctx is done.
func (r *round) fail(ctx context.Context, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil || ctx.Err() != nil || r.err != nil {
		return
	}
	r.err = fmt.Errorf("run checks side by side: %w", err)
	r.stop()
}
