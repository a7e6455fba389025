package main

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRollupIsReadInBytesOf1024(t *testing.T) {
	const text = `00400000-7ffd2a5f2000 ---p 00000000 00:00 0                              [rollup]
Rss:               10512 kB
Pss:                3000 kB
Pss_Dirty:          2100 kB
Pss_Anon:           2000 kB
Anonymous:          2000 kB
LazyFree:              0 kB
`
	m, err := parseRollup(strings.NewReader(text))
	if want := (memory{pss: 3.072, anonymous: 2.048}); err != nil || m != want {
		t.Errorf("%+v, %v; want %+v", m, err, want)
	}
	for _, broken := range []string{
		"",
		"Pss: 3000 kB\n",
		strings.Replace(text, "2000 kB\nLazy", "many kB\nLazy", 1),
	} {
		if m, err := parseRollup(strings.NewReader(broken)); err == nil {
			t.Errorf("%q is read as %+v", broken, m)
		}
	}
}

func TestParentOfAProcessWhoseNameHasParentheses(t *testing.T) {
	if parent, err := parseParent("12 (a) S 7 (b) R 34 1 1 0\n"); err != nil || parent != 34 {
		t.Errorf("%d, %v", parent, err)
	}
	if _, err := parseParent("12 (a)"); err == nil {
		t.Error("a stat without fields has a parent")
	}
	if parent, err := parentOf(os.Getpid()); err != nil || parent != os.Getppid() {
		t.Errorf("own parent %d, %v; want %d", parent, err, os.Getppid())
	}
}

func TestCPUTimeIsThatOfAllThreads(t *testing.T) {
	before, err := cpuTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const work = 50 * time.Millisecond
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		runtime.LockOSThread() // and no unlock: the thread ends with the goroutine
		used := func() time.Duration {
			var now unix.Timespec
			_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
			return time.Duration(now.Nano())
		}
		for begin := used(); used()-begin < work; {
		}
	}()
	<-worked
	after, err := cpuTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if after-before < work {
		t.Errorf("%s before and %s after a thread has worked for %s", before, after, work)
	}
	if d, err := cpuTime(1 << 23); err == nil { // more than the kernel has pids
		t.Errorf("a process that does not exist has used %s", d)
	}
}
