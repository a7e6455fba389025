package channel

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"time"
)

// A machine that has booted sleeps: it knows nothing of a pod, so that it can be saved, and restored for many pods. Before a
// session begins, the agent says asleep, which the host of a restored machine does not hear, and the host wakes it.
const asleep = "asleep\r\n"

// Wake is what a machine has to know when it wakes. Another one may have had the same past.
type Wake struct {
	Time   time.Time // of the host
	Random [64]byte  // drawn by the host for this machine alone
}

// bootTime is how long a machine may boot, which takes two seconds without KVM on an idle host.
const bootTime = 4 * time.Minute

// AwaitSleep waits until the machine sleeps. One that has not booted after bootTime has hung. The port must be in the
// runtime's poller.
func AwaitSleep(ctx context.Context, port *os.File) error { return awaitSleep(ctx, port, bootTime) }

func awaitSleep(ctx context.Context, port *os.File, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has taken longer than %s", limit))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = port.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	word := make([]byte, len(asleep))
	_, err := io.ReadFull(port, word)
	if err == nil && string(word) != asleep {
		err = ErrMessage
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("wait until the machine has booted: %w", err)
	}
	return nil
}

// WakeGuest wakes the machine at the other end of a port, which sleeps.
func WakeGuest(port io.Writer) error {
	w := Wake{Time: time.Now()}
	_, _ = rand.Read(w.Random[:]) // never fails
	message := binary.BigEndian.AppendUint64(nil, uint64(w.Time.UnixNano()))
	if _, err := port.Write(append(message, w.Random[:]...)); err != nil {
		return fmt.Errorf("wake the machine: %w", err)
	}
	return nil
}

// Sleep is the agent's part: it returns when the host wakes the machine.
func Sleep(port io.ReadWriter) (w Wake, err error) {
	if _, err := io.WriteString(port, asleep); err != nil {
		return w, fmt.Errorf("sleep: %w", err)
	}
	var nanoseconds [8]byte
	for _, part := range [][]byte{nanoseconds[:], w.Random[:]} {
		if _, err := io.ReadFull(port, part); err != nil {
			return w, fmt.Errorf("sleep: %w", err)
		}
	}
	w.Time = time.Unix(0, int64(binary.BigEndian.Uint64(nanoseconds[:])))
	return w, nil
}
