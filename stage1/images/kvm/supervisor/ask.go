package supervisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// patience is how long the agent has to undo a call whose caller has gone. Stage 0 ends the
// pod after ten seconds.
const patience = 5 * time.Second

// ask makes a call of the agent, and returns the document that it answers with, if any. ready,
// which may be nil, gets the pid of a process that the call has made. When ctx ends, the agent
// undoes the call.
func (s *Supervisor) ask(ctx context.Context, h channel.Header, ready func(pid int) error) (document []byte, err error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	stream, err := s.Session.Open(ctx, channel.Call, text)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, func() {
		_ = stream.SetReadDeadline(time.Now().Add(patience))
		_ = stream.Close()
	})()
	document, err = receive(bufio.NewReader(stream), ready)
	if errors.Is(err, channel.ErrMessage) {
		s.giveUp(fmt.Errorf("the machine: %w", err))
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return document, err
}

// receive reads the answers of a call. Each may come once, and Exit is the last.
func receive(r *bufio.Reader, ready func(pid int) error) (document []byte, err error) {
	var said string
	had := map[channel.Word]bool{}
	for {
		word, body, err := channel.Receive(r, channel.MaxAnswer)
		if err != nil {
			if !errors.Is(err, channel.ErrMessage) {
				err = fmt.Errorf("the machine has ended over the call: %w", err)
			}
			return nil, err
		}
		if had[word] {
			return nil, fmt.Errorf("%w: %s comes twice", channel.ErrMessage, word)
		}
		had[word] = true
		switch word {
		case channel.Ready:
			pid, err := channel.ParseReady(body)
			if err != nil {
				return nil, err
			}
			if ready == nil {
				return nil, fmt.Errorf("%w: a call that makes no process is ready", channel.ErrMessage)
			}
			if err := ready(pid); err != nil {
				return nil, err
			}
		case channel.Answer:
			document = body
		case channel.Error:
			said = string(body)
		case channel.Exit:
			code, err := channel.ParseExit(body)
			if err != nil {
				return nil, err
			}
			if code != 0 {
				return nil, &serve.Failure{Code: code, Text: said}
			}
			return document, nil
		default:
			return nil, fmt.Errorf("%w: %.20q in an answer", channel.ErrMessage, string(word))
		}
	}
}
