package main

import (
	"context"
	"os"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

func TestAProcessWithoutStreamsHasDevNull(t *testing.T) {
	s := &streams{arrived: map[uint32]chan data{}}
	c := &call{Header: channel.Header{Call: &abi.Request{Entrypoint: abi.Enter}, Streams: []uint32{channel.Null, channel.Null, channel.Null}}}
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
