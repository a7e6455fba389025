package supervisor

import (
	"context"
	"fmt"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// A machine sets its clock when it boots. Without KVM it loses the time in which it does not run, and with KVM it does not
// follow the changes of the host's clock, which NTP makes all the time. So its clock is looked at in each clockInterval, first
// after clockBegin, and changed if it is off by more than clockError and by more than the look could have missed.
const (
	clockBegin    = 10 * time.Second
	clockInterval = time.Minute
	clockError    = 20 * time.Millisecond
)

// keepTime keeps the machine's clock until the connection to the agent ends.
func (s *Supervisor) keepTime() {
	wait := time.NewTimer(clockBegin)
	defer wait.Stop()
	for {
		select {
		case <-s.ended:
			return
		case <-s.ctx.Done():
			return
		case <-wait.C:
		}
		if err := s.setTime(s.ctx); err != nil && s.ctx.Err() == nil {
			fmt.Fprintf(s.Log, "the machine's clock: %v\n", err)
		}
		wait.Reset(clockInterval)
	}
}

// setTime changes the machine's clock to the host's, if it is off.
func (s *Supervisor) setTime(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	before := time.Now()
	text, err := s.ask(ctx, channel.Header{Clock: &channel.Clock{}}, nil)
	if err != nil {
		return err
	}
	took := time.Since(before)
	theirs, err := channel.ParseClock(text)
	if err != nil {
		return err
	}
	// Round(0): the host's clock may have been set since it was booted, so its wall clock counts.
	off := before.Add(took / 2).Round(0).Sub(theirs)
	if off.Abs() <= max(clockError, took) {
		return nil
	}
	_, err = s.ask(ctx, channel.Header{Clock: &channel.Clock{Add: off.Nanoseconds()}}, nil)
	return err
}
