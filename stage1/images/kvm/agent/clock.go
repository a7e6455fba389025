package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// slewed is the largest change of the clock that is made little by little, by half a millisecond in a second. A larger one is
// made at once, because programs would have a wrong time for long.
const slewed = time.Second / 2

// clock changes the machine's clock, and answers its time.
func (a *agent) clock(c *call) error {
	if add := time.Duration(c.Clock.Add); add != 0 {
		if err := changeClock(add); err != nil {
			return fmt.Errorf("change the machine's clock by %s: %w", add, err)
		}
	}
	text, err := plainjson.Encode(channel.Clock{Time: time.Now().UnixNano()})
	if err == nil {
		c.reply(channel.Answer, text)
	}
	return err
}

func changeClock(add time.Duration) error {
	if add.Abs() <= slewed {
		_, err := unix.Adjtimex(&unix.Timex{Modes: unix.ADJ_OFFSET_SINGLESHOT, Offset: add.Microseconds()})
		return err
	}
	now := unix.NsecToTimespec(time.Now().Add(add).UnixNano())
	return unix.ClockSettime(unix.CLOCK_REALTIME, &now)
}
