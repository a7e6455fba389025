package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// execCall returns the call of an exec with these streams.
func execCall(streams ...uint32) *call {
	return &call{Header: channel.Header{Call: &abi.Request{Entrypoint: abi.Enter}, Streams: streams}}
}

func TestAProcessWithoutStreamsHasDevNull(t *testing.T) {
	s := newStreams()
	c := execCall(channel.Null, channel.Null, channel.Null)
	none, err := s.takeAll(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	files, err := pipes(none)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(files[:]...)
	want, err := os.Stat(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	for fd, f := range files {
		if got, err := f.Stat(); err != nil || !os.SameFile(got, want) {
			t.Errorf("descriptor %d: %v, %v", fd, got, err)
		}
		if _, err := f.WriteString("x"); err != nil {
			t.Errorf("descriptor %d: %v", fd, err)
		}
	}
	c.Call.Terminal, c.Streams = true, []uint32{channel.Null}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := s.takeAll(ended, c); err == nil {
		t.Error("a terminal needs no stream")
	}
}

func TestAProcessReadsAndWritesTheStreamsOfTheHost(t *testing.T) {
	stdin, in := connected(t)
	stdout, out := connected(t)
	files, err := pipes([]data{in, out, {}})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(files[:]...)
	if err := channel.Send(stdin, channel.Input, []byte("input")); err != nil {
		t.Fatal(err)
	}
	if err := channel.Send(stdin, channel.End, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(files[0]); string(got) != "input" || err != nil {
		t.Errorf("the process reads %q, %v", got, err)
	}
	if _, err := files[1].WriteString("output"); err != nil {
		t.Fatal(err)
	}
	sent := output(stdout)
	if got := wait.For(t, "the output", sent); got != "output" {
		t.Errorf("the host reads %q", got)
	}
	files[1].Close()
	if got := wait.For(t, "the end of the output", sent); got != "" {
		t.Errorf("the host reads %q", got)
	}
}

// The host's message on the stream may be read after its call has ended.
func TestAStreamOfACallThatWasGivenUpIsNotKept(t *testing.T) {
	host, guest := connected(t)
	s := newStreams()
	s.limit = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.take(ctx, 7); !errors.Is(err, context.Canceled) {
		t.Fatalf("it was taken: %v", err)
	}
	s.put(7, guest)
	if got := wait.For(t, "the end of the stream", output(host)); got != "" {
		t.Errorf("the agent sends %q", got)
	}
	if n := len(s.arrived); n != 0 {
		t.Errorf("%d stream is kept", n)
	}
}

func TestACallWaitsForItsStreamsForALimitedTime(t *testing.T) {
	s := newStreams()
	s.limit = time.Millisecond
	_, err := s.takeAll(t.Context(), execCall(3, 5, channel.Null))
	if err == nil || !strings.Contains(err.Error(), "stream 3 has not arrived within 1ms") {
		t.Errorf("the error is %v", err)
	}
	if n := len(s.arrived); n != 0 {
		t.Errorf("%d stream is kept", n)
	}
}

func TestACallThatFailsClosesItsStreams(t *testing.T) {
	host, guest := connected(t)
	a := &agent{streams: newStreams()}
	a.streams.put(3, guest)
	failed := errors.New("the disk is not there")
	err := a.make(t.Context(), execCall(channel.Null, 3, channel.Null), func(context.Context, *call) error { return failed })
	if err != failed {
		t.Errorf("the error is %v", err)
	}
	if got := wait.For(t, "the end of the stream", output(host)); got != "" {
		t.Errorf("the agent sends %q", got)
	}
}
