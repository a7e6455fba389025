package wait

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Slowness is the factor by which this machine is slower than others, such as an emulated
// one: RKT_TEST_SLOWNESS of the environment, or 1.
var Slowness = slowness()

// Patience is the longest wait for a condition. A working machine always reaches such a
// condition, however busy it is.
var Patience = 30 * time.Second * Slowness

// mostBusyness bounds Busyness: a test that measures a time must be able to fail.
const mostBusyness = 10

// Busyness returns by which factor the machine is slower now than an idle one that is not slow:
// Slowness, and as many times that as processes want each processor, now or in the last minute.
// Multiply the longest time with it that something may take that a test measures.
func Busyness() time.Duration {
	text, _ := os.ReadFile("/proc/loadavg")
	return busyness(string(text), runtime.NumCPU()) * Slowness
}

// busyness is that of a machine with so many processors, by the text of /proc/loadavg.
func busyness(loadavg string, processors int) time.Duration {
	var load, minutes float64
	var running int
	_, _ = fmt.Sscanf(loadavg, "%g %g %g %d/", &load, &minutes, &minutes, &running)
	wanted := max(load, float64(running))
	return time.Duration(min(mostBusyness, max(1, math.Ceil(wanted/float64(processors)))))
}

func slowness() time.Duration {
	n, err := strconv.Atoi(os.Getenv("RKT_TEST_SLOWNESS"))
	if err != nil || n < 1 {
		return 1
	}
	return time.Duration(n)
}

// Until waits until a condition holds. It ends the test if the condition does not hold in
// time.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !within(Patience, holds) {
		t.Fatalf("not within %s: %s", Patience, what)
	}
}

// Observe is Until for a condition that also describes the present state, for the error.
// A failure does not end the test: Observe reports whether the condition held.
func Observe(t testing.TB, what string, look func() (bool, string)) bool {
	t.Helper()
	return ObserveWithin(t, Patience, what, look)
}

// ObserveWithin is Observe with a limit in place of Patience.
func ObserveWithin(t testing.TB, limit time.Duration, what string, look func() (bool, string)) bool {
	t.Helper()
	var state string
	held := within(limit, func() (holds bool) {
		holds, state = look()
		return holds
	})
	if !held {
		const shown = 4000
		t.Errorf("not within %s: %s:\n\t%s", limit, what, state[max(0, len(state)-shown):])
	}
	return held
}

// For returns the next value of a channel, or the zero value if the channel is closed. It
// ends the test if neither happens in time.
func For[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Patience):
		t.Fatalf("not within %s: %s\n%s", Patience, what, stacks())
		panic("unreachable")
	}
}

// Blocked waits until n goroutines are blocked inside a function or its callees: on a
// channel, a lock, or a descriptor that the poller watches.
func Blocked(t testing.TB, function string, n int) {
	t.Helper()
	Observe(t, strconv.Itoa(n)+" goroutines are blocked in "+function, func() (bool, string) {
		found := 0
		for _, stack := range goroutines() {
			state, frames, _ := strings.Cut(stack, "\n")
			if strings.Contains(frames, function+"(") && !awake.MatchString(state) {
				found++
			}
		}
		return found >= n, strconv.Itoa(found)
	})
}

var awake = regexp.MustCompile(`\[(running|runnable|syscall|sleep|preempted|copystack)`)

// Still fails the test if a value that must not change does so within a tenth of a second.
// A slow machine cannot make it fail. It may miss a late change.
func Still[T comparable](t testing.TB, what string, value func() T) {
	t.Helper()
	before := value()
	time.Sleep(100 * time.Millisecond)
	if now := value(); now != before {
		t.Errorf("%s: %v became %v", what, before, now)
	}
}

// within evaluates a condition until it holds or the limit is over, and reports whether it
// held. The pauses between evaluations grow.
func within(limit time.Duration, holds func() bool) bool {
	const most = 100 * time.Millisecond
	for began := time.Now(); !holds(); {
		waited := time.Since(began)
		if waited > limit {
			return false
		}
		time.Sleep(min(time.Millisecond+waited/20, most))
	}
	return true
}

// stacks returns the stacks of all goroutines, the caller's first.
func stacks() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}
