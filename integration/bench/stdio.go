package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
)

const (
	// written is the number of bytes that a container writes, in blocks of blockSize.
	written   = 256 << 20
	blockSize = 64 << 10
)

// measureStdio lets containers write to a fifo that this process reads, like a client that
// shows a container's output.
func measureStdio(ctx context.Context, b *bench) error {
	ctx = b.namespaced(ctx)
	n := max(1, b.samples/3) // each sample takes as long as several others
	return b.alternate(ctx, fmt.Sprintf("%d MB through stdout", written>>20), n, func(ctx context.Context, s subject, record recorder) error {
		if s.name == floor {
			return nil // it executes nothing that could write
		}
		if err := b.measureOutput(ctx, s, record); err != nil {
			return err
		}
		return b.awaitQuiet(ctx)
	})
}

func (b *bench) measureOutput(ctx context.Context, s subject, record recorder) error {
	c, err := b.container(ctx, s, b.id(s),
		"dd", "if=/dev/zero", "bs="+strconv.Itoa(blockSize), "count="+strconv.Itoa(written/blockSize))
	if err != nil {
		return err
	}
	out, said := newCounter(written), newCounter(-1)
	task, err := c.NewTask(ctx, cio.NewCreator(cio.WithStreams(nil, out, said), cio.WithFIFODir(b.fifoDir())))
	if err != nil {
		return err
	}
	exited, err := task.Wait(ctx)
	if err != nil {
		return err
	}
	shims, err := b.shimPIDs(s)
	if err != nil {
		return err
	}
	before, err := cpuTimes(shims)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := task.Start(ctx); err != nil {
		return err
	}
	select {
	case <-out.full:
	case <-ctx.Done():
		return fmt.Errorf("the output does not arrive: %w", ctx.Err())
	}
	taken := time.Since(begin)
	after, err := cpuTimes(shims)
	if err != nil {
		return err
	}
	record(opThroughput, written/1e6/taken.Seconds())
	record(opShimCPU, float64((after-before).Microseconds())/1e3/(written/1e9))
	if err := (<-exited).Error(); err != nil {
		return err
	}
	if _, err := task.Delete(ctx); err != nil {
		return err
	}
	return c.Delete(ctx, containerd.WithSnapshotCleanup)
}

func cpuTimes(pids []int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		t, err := cpuTime(pid)
		if err != nil {
			return 0, err
		}
		sum += t
	}
	return sum, nil
}

// counter counts the bytes that are written to it, and closes full after the expected number.
type counter struct {
	missing int
	full    chan struct{}
}

func newCounter(expected int) *counter {
	return &counter{missing: expected, full: make(chan struct{})}
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	c.missing -= len(p)
	if c.missing == 0 {
		close(c.full)
	}
	return len(p), nil
}
