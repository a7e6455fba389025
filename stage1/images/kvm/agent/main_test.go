package main

import (
	"bufio"
	"io"
	"net"
	"os"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

func TestMain(m *testing.M) { os.Exit(wait.Run(m)) }

// connected returns both ends of a data stream.
func connected(t *testing.T) (host *channel.Stream, guest data) {
	t.Helper()
	a, b := net.Pipe()
	h, err := channel.Host(a)
	if err != nil {
		t.Fatal(err)
	}
	g, err := channel.Guest(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close(); g.Close() })
	opened := make(chan *channel.Stream, 1)
	go func() {
		s, err := h.Open(t.Context(), channel.Data, nil)
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}()
	s, err := g.Accept()
	if err != nil {
		t.Fatal(err)
	}
	guest = data{s, bufio.NewReader(s)}
	if word, _, err := channel.Receive(guest.input, channel.MaxCall); word != channel.Data || err != nil {
		t.Fatalf("the first message is %q, %v", word, err)
	}
	return wait.For(t, "the stream", opened), guest
}

// output returns what the agent sends on a stream, and is closed with its end.
func output(s *channel.Stream) <-chan string {
	all := make(chan string, 16)
	go func() {
		defer close(all)
		buf := make([]byte, 4096)
		for {
			n, err := io.ReadAtLeast(s, buf, 1)
			if err != nil {
				return
			}
			all <- string(buf[:n])
		}
	}()
	return all
}
