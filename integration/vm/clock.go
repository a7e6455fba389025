package main

import (
	"fmt"
	"time"
	_ "unsafe" // for go:linkname
)

// clockTime is how long the processor's counter is compared with the clock.
const clockTime = 200 * time.Millisecond

// clockArgument returns the argument with which the guest's kernel knows the rate of the processor's
// counter, which is the machine's. The kernel would measure it by a timer of QEMU's. On a machine with
// much other work that is wrong by a factor of ten and more, and with it each time limit of the tests.
func clockArgument() string {
	began, from := readCounter()
	time.Sleep(clockTime)
	ended, to := readCounter()
	return fmt.Sprint(" tsc_early_khz=", (to-from)*int64(time.Millisecond)/int64(ended.Sub(began)))
}

// readCounter returns the value of the processor's counter at a time. Of some attempts it takes the one with
// the least time between two looks at the clock: in the others, the thread may have been interrupted.
func readCounter() (at time.Time, counter int64) {
	const attempts = 100
	least := time.Duration(-1)
	for range attempts {
		before := time.Now()
		c := cputicks()
		if took := time.Since(before); least < 0 || took < least {
			least, at, counter = took, before.Add(took/2), c
		}
	}
	return at, counter
}

// cputicks reads the processor's counter.
//
//go:linkname cputicks runtime.cputicks
func cputicks() int64
