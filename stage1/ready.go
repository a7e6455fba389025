package stage1

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// maxReady is the largest size of the ready line, in bytes and with its newline.
const maxReady = 1024

// lastWords is how long a call may take to report its error when it has closed its end of
// the ready pipe without a line.
const lastWords = time.Second

// AwaitReady waits for the ready line. If the call or the pipe ends before, it returns an
// error.
func (k *Call) AwaitReady(ctx context.Context) (abi.Ready, error) {
	ctx, cancel := k.Limit(ctx)
	defer cancel()
	line := k.firstLine()
	select {
	case <-line.done:
	case <-k.Ended:
		line.stop()
	case <-ctx.Done():
		if !closed(line.done) { // a process that the call has told of is not left alone
			err := k.Hung(ctx)
			line.stop()
			return abi.Ready{}, err
		}
	}
	switch {
	case !line.complete() && len(line.text) >= maxReady:
		return abi.Ready{}, fmt.Errorf("%w, and no newline in %d bytes", errNotReady(line.text), maxReady)
	case len(line.text) == 0:
		return abi.Ready{}, k.silent(ctx)
	case !line.complete():
		return abi.Ready{}, fmt.Errorf("%w, and no newline", errNotReady(line.text))
	}
	ready, err := decodeReady(line.text)
	if err != nil {
		return ready, err
	}
	return ready, k.identify(&ready)
}

// firstLine returns the ready line, which may not have arrived yet.
func (k *Call) firstLine() *line {
	if k.asked != nil {
		return k.asked.ready
	}
	return readLine(k.ready)
}

// silent returns the error for a ready pipe that was closed without a line. It waits for a
// moment, because the call may be about to fail with a more useful error.
func (k *Call) silent(ctx context.Context) error {
	grace := time.NewTimer(lastWords)
	defer grace.Stop()
	select {
	case <-k.Ended:
		return ErrEnded
	case <-ctx.Done():
		return k.Hung(ctx)
	case <-grace.C:
		return fmt.Errorf("it closed RKT_READY_FD without writing a line like {\"pid\": 4711} to it")
	}
}

func errNotReady(line []byte) error {
	return fmt.Errorf("it wrote %.80q to RKT_READY_FD instead of a line like {\"pid\": 4711}", line)
}

// decodeReady parses a ready line with its newline.
func decodeReady(line []byte) (abi.Ready, error) {
	var r abi.Ready
	if err := plainjson.Decode(line, &r); err != nil || r.PID <= 0 {
		return abi.Ready{}, errNotReady(line)
	}
	return r, nil
}

// identify checks that the reported process exists and can belong to the pod, and sets its
// start time.
func (k *Call) identify(r *abi.Ready) error {
	if r.PID == os.Getpid() {
		return fmt.Errorf("it reported process %d as ready, which is the shim", r.PID)
	}
	start, err := proc.StartTime(r.PID)
	switch {
	case err != nil && r.StartTime != 0:
		// The process has ended, and the stage1 has reaped it and recorded its exit. Some
		// execs are that short.
		return nil
	case err != nil:
		return fmt.Errorf("it reported process %d as ready, and there is no such process", r.PID)
	case r.StartTime != 0 && r.StartTime != start:
		return fmt.Errorf("it reported process %d as started at %d, and that process started at %d", r.PID, r.StartTime, start)
	}
	// Refuse processes older than the shim. They cannot belong to the pod, because all
	// processes of a pod descend from the shim, and stage 0 must not signal other processes
	// of the machine.
	shims, err := proc.StartTime(os.Getpid())
	if err != nil {
		return err
	}
	if r.PID == 1 || start < shims {
		return fmt.Errorf("it reported process %d as ready, which ran before the shim did: it cannot be one of the pod's", r.PID)
	}
	r.StartTime = start
	return nil
}

// line is the first line of a pipe that is being read.
type line struct {
	pipe *os.File
	done chan struct{}
	text []byte // read after done
}

// readLine begins to read a line. Text after the line may stay unread.
func readLine(pipe *os.File) *line {
	l := &line{pipe: pipe, done: make(chan struct{})}
	go l.run()
	return l
}

func (l *line) run() {
	defer close(l.done)
	buf := make([]byte, 256)
	for !l.full() {
		n, err := l.pipe.Read(buf)
		l.text = append(l.text, buf[:n]...)
		if err != nil {
			break
		}
	}
	l.cut()
}

// stop ends the reading, with the text that is in the pipe at that moment. A call on a
// socket has no pipe; its line is complete when the call has ended.
func (l *line) stop() {
	if l.pipe == nil {
		return
	}
	_ = l.pipe.SetReadDeadline(time.Now())
	<-l.done
	if !l.full() {
		proc.Drain(l.pipe, func(b []byte) { l.text = append(l.text, b...) })
		l.cut()
	}
}

func (l *line) complete() bool { return bytes.HasSuffix(l.text, []byte("\n")) }

func (l *line) full() bool { return len(l.text) >= maxReady || bytes.IndexByte(l.text, '\n') >= 0 }

func (l *line) cut() {
	if end := bytes.IndexByte(l.text, '\n'); end >= 0 {
		l.text = l.text[:end+1]
	}
	l.text = l.text[:min(len(l.text), maxReady)]
}
