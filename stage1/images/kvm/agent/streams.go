package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// data is a data stream of the host. Without a Stream it stands for /dev/null.
type data struct {
	*channel.Stream
	input *bufio.Reader // Input and End
}

// streams has the data streams until calls take them.
type streams struct {
	// limit is how long a stream waits for its call, and a call for its streams. The host opens the streams
	// of a process, starts its proxy, and then makes the call.
	limit time.Duration

	mu      sync.Mutex
	arrived map[uint32]chan data
}

func newStreams() *streams {
	return &streams{limit: 2 * time.Minute, arrived: map[uint32]chan data{}}
}

func (s *streams) slot(n uint32) chan data {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.arrived[n] == nil {
		s.arrived[n] = make(chan data, 1)
	}
	return s.arrived[n]
}

func (s *streams) forget(n uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.arrived, n)
}

// put keeps a stream that has arrived. The host may have given up its call, before or after.
func (s *streams) put(n uint32, d data) {
	slot := s.slot(n)
	slot <- d
	time.AfterFunc(s.limit, func() {
		select {
		case <-slot:
			s.forget(n)
			_ = d.Close()
		default: // it was taken
		}
	})
}

// take waits for a stream, because the host's messages on different streams may be read in
// any order.
func (s *streams) take(ctx context.Context, n uint32) (d data, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("stream %d has not arrived within %s", n, s.limit))
	defer cancel()
	slot := s.slot(n)
	select {
	case d = <-slot:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.forget(n)
	return d, err
}

// takeAll takes the streams of a call.
func (s *streams) takeAll(ctx context.Context, c *call) ([]data, error) {
	want := 3
	if c.Call.Terminal {
		want = 1
	}
	if len(c.Streams) != want {
		return nil, fmt.Errorf("%s with %d streams, want %d", c.Call.Entrypoint, len(c.Streams), want)
	}
	var all []data
	for _, n := range c.Streams {
		if n == channel.Null && !c.Call.Terminal {
			all = append(all, data{})
			continue
		}
		d, err := s.take(ctx, n)
		if err != nil {
			closeStreams(all)
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

func closeStreams(all []data) {
	for _, d := range all {
		if d.Stream != nil {
			_ = d.Close()
		}
	}
}

// feed writes the input of a stream to a file, until its end or until nothing reads the file.
// It closes the file with done.
func (d data) feed(to io.Writer, done func()) {
	d.pour(to)
	done()
	_ = d.Close() // the host reads nothing more for it
}

// pour writes the input of a stream, until its end or until nothing reads what is written.
func (d data) pour(to io.Writer) {
	for {
		word, body, err := channel.Receive(d.input, channel.MaxInput)
		if err != nil || word != channel.Input {
			return
		}
		if _, err := to.Write(body); err != nil {
			return
		}
	}
}

// fetch sends what from has to the host, until its end or until the host takes no more. It then calls done.
func (d data) fetch(from io.Reader, done func()) {
	_, _ = io.Copy(struct{ io.Writer }{d}, struct{ io.Reader }{from})
	done()
	_ = d.Close()
}

// pipes returns the descriptors of a process whose streams are data, and starts to carry. The
// caller closes the files when the process has them.
func pipes(streams []data) (files [3]*os.File, err error) {
	var ends [3]*os.File
	for i, d := range streams {
		var r, w *os.File
		if d.Stream == nil {
			w, err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
		} else if r, w, err = os.Pipe(); i == 0 {
			r, w = w, r
		}
		files[i], ends[i] = w, r
		if err != nil {
			closeAll(files[:]...)
			closeAll(ends[:]...)
			return files, err
		}
	}
	for _, f := range files {
		f.Fd() // makes it blocking, as a process has it
	}
	for i, d := range streams {
		switch {
		case d.Stream == nil:
		case i == 0:
			go d.feed(ends[i], func() { ends[i].Close() })
		default:
			go d.fetch(ends[i], func() { ends[i].Close() })
		}
	}
	return files, nil
}
