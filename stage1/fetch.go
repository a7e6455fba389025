package stage1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// Ask calls an entrypoint that answers with a document, and returns the document.
func (s *Stage1) Ask(ctx context.Context, c pod.Call) ([]byte, error) {
	k, err := s.NewCall(c, c.Request.Entrypoint)
	if err != nil {
		return nil, err
	}
	k.Trace(ctx)
	return k.fetch(ctx, abi.MaxAppStats, k.Start)
}

// fetch starts the call and returns what it answers, on its socket or on descriptor 1. More
// than limit bytes are an error.
func (k *Call) fetch(ctx context.Context, limit int, start func() error) ([]byte, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, k.Fail(err)
	}
	defer r.Close()
	k.answer = w
	err = start()
	_ = w.Close()
	if err != nil {
		return nil, k.Fail(err)
	}
	var text []byte
	var readErr error
	if k.asked == nil {
		_ = r.SetReadDeadline(k.Began.Add(k.Stage1.Limit(k.Entrypoint)))
		stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Now()) })
		text, readErr = io.ReadAll(io.LimitReader(r, int64(limit)+1))
		if !stop() && readErr != nil {
			readErr = context.Cause(ctx)
		}
		if len(text) > limit {
			return nil, k.Fail(fmt.Errorf("its answer has more than %d bytes", limit))
		}
	}
	if err := k.awaitEnd(ctx); err != nil {
		return nil, k.Fail(err)
	}
	if readErr != nil {
		return nil, k.Fail(errors.Join(errors.New("a process that it left keeps its output open"), readErr))
	}
	if k.asked != nil {
		text = k.asked.text
	}
	k.Release()
	k.Leave()
	return text, nil
}
