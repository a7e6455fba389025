package supervisor

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

func TestAMachineWhoseClockIsOffIsTold(t *testing.T) {
	w := newWorld(t)
	for _, off := range []time.Duration{0, time.Millisecond, time.Hour, -time.Hour, 300 * time.Millisecond} {
		var add time.Duration
		w.guest.on(clockCall, func(s *channel.Stream, h *channel.Header) {
			if h.Clock.Add != 0 {
				add = time.Duration(h.Clock.Add)
			}
			text, _ := json.Marshal(channel.Clock{Time: time.Now().Add(-off).UnixNano()})
			say(s, "answer", string(text), "exit", "0")
		})
		if err := w.s.setTime(t.Context()); err != nil {
			t.Fatal(err)
		}
		if off.Abs() < clockError {
			off = 0
		}
		if diff := (add - off).Abs(); diff > time.Second/4 {
			t.Errorf("off by %s, it is told %s", off, add)
		}
	}
	w.guest.on(clockCall, func(s *channel.Stream, _ *channel.Header) { say(s, "answer", "noon", "exit", "0") })
	if err := w.s.setTime(t.Context()); err == nil {
		t.Error("what is no time was believed")
	}
}
