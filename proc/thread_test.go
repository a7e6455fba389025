package proc_test

import (
	"bytes"
	"errors"
	"os"
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

// A placeholder ends when the thread ends that has started it.
func TestOnThreadDoesNotEndThePlaceholdersOfThisProcess(t *testing.T) {
	c := newChildren(t)
	var placeholders []*proc.Child
	for range 8 {
		p, err := c.StartStopped()
		if err != nil {
			t.Fatal(err)
		}
		placeholders = append(placeholders, p)
	}
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() { _ = proc.OnThread(func() error { return nil }) })
	}
	all.Wait()
	for _, p := range placeholders {
		if !proc.Alive(p.PID(), p.StartTime()) {
			t.Errorf("placeholder %d has ended", p.PID())
		}
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		p.Wait()
	}
}

// Without that, a thread that is blocked in the kernel could be the one that the kernel gives a SIGCHLD.
func TestOnThreadTakesNoSignalsOfTheProcess(t *testing.T) {
	err := proc.OnThread(func() error {
		status, err := os.ReadFile("/proc/thread-self/status")
		if !bytes.Contains(status, []byte("SigBlk:\tffffffffffbbfa27\n")) {
			t.Errorf("%s", status)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
