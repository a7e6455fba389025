package main

import (
	"context"
	"errors"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// A call that waits for a disk has made a cgroup, and has the name of its app.
func TestTheWaitForADeviceEndsWithItsCall(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	found, err := newDevices(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer found.close()
	ended := make(chan error, 1)
	go func() {
		for {
			if err := found.next(); err != nil { // the host of the tests has events, too
				ended <- err
				return
			}
		}
	}()
	gone := errors.New("the host has given up the call")
	cancel(gone)
	if err := wait.For(t, "the end of the wait", ended); !errors.Is(err, gone) {
		t.Errorf("the wait ends with %v", err)
	}
}
