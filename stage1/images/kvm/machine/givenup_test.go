package machine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// slowQEMU answers every command, and device_add only when late is readable, as a busy QEMU does. A device that is to be removed
// is given up at once.
func slowQEMU(t *testing.T, qemu net.Conn, late <-chan struct{}) {
	say(t, qemu, `{"QMP":{"version":{},"capabilities":[]}}`)
	go func() {
		lines := bufio.NewScanner(qemu)
		for lines.Scan() {
			var c struct {
				command
				Arguments struct {
					ID string `json:"id"`
				} `json:"arguments"`
			}
			if json.Unmarshal(lines.Bytes(), &c) != nil {
				return
			}
			answer := `{"return":{},"id":` + strconv.FormatUint(c.ID, 10) + `}`
			switch c.Execute {
			case "device_add":
				go func() {
					if _, ok := <-late; ok {
						say(t, qemu, answer)
					}
				}()
				continue
			case "device_del":
				answer += "\r\n" + `{"event":"DEVICE_DELETED","data":{"device":"` + c.Arguments.ID + `"}}`
			}
			say(t, qemu, answer)
		}
	}()
}

func TestADeviceWhoseCallerHasLeftGivesItsPortBack(t *testing.T) {
	q, qemu := monitored(t)
	late := make(chan struct{})
	defer close(late)
	slowQEMU(t, qemu, late)
	m := &machine{qmp: q, devices: map[Device]*device{}}
	m.config.Log = t.Output()
	removed := make(chan string, ports)
	fake := func() backend {
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		return backend{file, func(_ context.Context, id string) (map[string]any, func(context.Context) error, error) {
			return map[string]any{"driver": "x"}, func(ctx context.Context) error { removed <- id; return ctx.Err() }, nil
		}}
	}
	gone := errors.New("the caller has left")
	for range ports {
		ctx, leave := context.WithCancelCause(t.Context())
		added := make(chan error, 1)
		go func() {
			_, err := m.add(ctx, "disk", fake())
			added <- err
		}()
		wait.Blocked(t, "machine.(*machine).add", 1)
		leave(gone)
		if err := wait.For(t, "the end of the call", added); err != gone {
			t.Fatalf("the call ends with %v", err)
		}
	}
	if _, err := m.add(t.Context(), "disk", fake()); err == nil || !strings.Contains(err.Error(), "no port") {
		t.Errorf("QEMU may have %d devices, and one more is added: %v", ports, err)
	}
	for range ports {
		late <- struct{}{}
		wait.For(t, "the removal of what is behind the device", removed)
	}
	wait.Until(t, "no device is left", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.devices) == 0
	})
	added := make(chan Device, 1)
	go func() {
		id, err := m.add(t.Context(), "disk", fake())
		if err != nil {
			t.Errorf("add a disk: %v", err)
		}
		added <- id
	}()
	late <- struct{}{}
	if err := m.RemoveDevice(t.Context(), wait.For(t, "the device", added)); err != nil {
		t.Error(err)
	}
}

func TestACommandThatCannotBeSentWaitsForNoAnswer(t *testing.T) {
	q, _ := monitored(t)
	q.sending <- struct{}{} // another command is being sent
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if err := q.execute(ctx, "stop", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the command ends with %v", err)
	}
	<-q.sending
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.waiting); n != 0 {
		t.Errorf("%d answer is awaited", n)
	}
}
