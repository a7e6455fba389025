package proc_test

import (
	"errors"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// The main thread is idle while tests wait, so it gets goroutines like any other.
func TestOnThreadIsNeverOnTheMainThread(t *testing.T) {
	failed := errors.New("no")
	var all sync.WaitGroup
	for range 2000 {
		all.Go(func() {
			err := proc.OnThread(func() error {
				if unix.Gettid() == unix.Getpid() {
					t.Error("f is called on the main thread")
				}
				return failed
			})
			if err != failed {
				t.Errorf("the error is %v", err)
			}
		})
	}
	all.Wait()
}
