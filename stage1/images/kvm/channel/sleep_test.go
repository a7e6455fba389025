package channel_test

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// ports returns the host's end of a channel and the agent's.
func ports(t *testing.T) (host, agent *os.File) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	host, agent = os.NewFile(uintptr(pair[0]), "host"), os.NewFile(uintptr(pair[1]), "agent")
	t.Cleanup(func() { host.Close(); agent.Close() })
	return host, agent
}

func TestNoTwoMachinesWakeWithTheSameNumbers(t *testing.T) {
	seen := map[[64]byte]bool{{}: true}
	for range 3 {
		host, agent := ports(t)
		woken := make(chan error, 1)
		go func() {
			err := channel.AwaitSleep(t.Context(), host)
			if err == nil {
				err = channel.WakeGuest(host)
			}
			if err == nil {
				_, err = host.WriteString("of the session")
			}
			woken <- err
		}()
		before := time.Now()
		w, err := channel.Sleep(agent)
		if err := errors.Join(err, <-woken); err != nil {
			t.Fatal(err)
		}
		if w.Time.Before(before) || w.Time.After(time.Now()) {
			t.Errorf("the machine wakes at %s, between %s and %s", w.Time, before, time.Now())
		}
		if seen[w.Random] {
			t.Errorf("another machine woke with %x", w.Random)
		}
		seen[w.Random] = true
		rest := make([]byte, len("of the session"))
		if _, err := io.ReadFull(agent, rest); err != nil || string(rest) != "of the session" {
			t.Errorf("after it the agent reads %q, %v", rest, err)
		}
	}
}

func TestTheHostWaitsForASleepingMachineAndNoOther(t *testing.T) {
	host, agent := ports(t)
	if _, err := agent.WriteString("awake!\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := channel.AwaitSleep(t.Context(), host); !errors.Is(err, channel.ErrMessage) {
		t.Errorf("a machine that says something else: %v", err)
	}
	ended, end := context.WithCancelCause(t.Context())
	why := errors.New("the pod is being stopped")
	time.AfterFunc(10*time.Millisecond, func() { end(why) })
	if err := channel.AwaitSleep(ended, host); !errors.Is(err, why) {
		t.Errorf("a machine that says nothing: %v", err)
	}
	agent.Close()
	host, agent = ports(t)
	agent.Close()
	if err := channel.AwaitSleep(t.Context(), host); !errors.Is(err, io.EOF) {
		t.Errorf("a machine that has ended: %v", err)
	}
}
