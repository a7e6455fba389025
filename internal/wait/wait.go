package wait

import (
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Slowness is how many times slower than others this machine is, an emulated one for
// example: the environment's RKT_TEST_SLOWNESS, or 1.
var Slowness = slowness()

// Patience is how long a test waits for what is certain to happen on a machine that is
// not broken, however busy.
var Patience = 30 * time.Second * Slowness

func slowness() time.Duration {
	n, err := strconv.Atoi(os.Getenv("RKT_TEST_SLOWNESS"))
	if err != nil || n < 1 {
		return 1
	}
	return time.Duration(n)
}

// Until waits until a condition holds, and ends the test if it does not in time.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !within(Patience, holds) {
		t.Fatalf("not within %s: %s", Patience, what)
	}
}

// Observe is Until for a condition that also says how things stand, which is part of
// the error. The test goes on after it: Observe reports whether the condition held.
func Observe(t testing.TB, what string, look func() (bool, string)) bool {
	t.Helper()
	return ObserveWithin(t, Patience, what, look)
}

// ObserveWithin is Observe with a patience of the caller's.
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

// For returns what a channel delivers, or the zero value once it is closed. It ends the
// test if neither happens in time.
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

// Blocked waits until n goroutines are inside a function, or what it calls, and blocked:
// on a channel, a lock, a descriptor that the poller watches.
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

// Still fails the test if a value changes within a tenth of a second, of what must stay as
// it is. It cannot fail for want of time, and may miss a change that is late.
func Still[T comparable](t testing.TB, what string, value func() T) {
	t.Helper()
	before := value()
	time.Sleep(100 * time.Millisecond)
	if now := value(); now != before {
		t.Errorf("%s: %v became %v", what, before, now)
	}
}

// within looks at a condition again and again, the longer it waits the less often.
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

// stacks returns where all goroutines are.
func stacks() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}
