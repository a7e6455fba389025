package machine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// monitor is a client of QEMU's machine protocol (QMP). QEMU may have been taken over by its guest,
// so what it sends is bounded: a line too long or without sense ends the connection.
type monitor struct {
	conn *os.File
	done chan struct{} // closed when the connection has ended

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan answer // by the id of the command; an answer may come after its caller has left
	ready   chan struct{}          // closed by the greeting
	reason  string                 // of the shutdown of the guest, as QEMU's event names it
	stopped chan struct{}          // closed when QEMU has stopped the guest without a call of pause
	halted  bool
	pausing bool
	// migrations are the states of the migration that is in progress, or nil.
	migrations chan string
	unplugs    map[string]chan error // by the id of the device that the guest is to give up
	err        error                 // set before done is closed

	sending chan struct{} // has one token: a command is sent while it is taken
}

// maxLine is the longest line that QEMU may send.
const maxLine = 1 << 20

// answer is a line that QEMU sends: a greeting, an event, or the answer to a command.
type answer struct {
	Greeting json.RawMessage `json:"QMP"`
	Event    string          `json:"event"`
	Data     struct {
		Reason string `json:"reason"` // of SHUTDOWN
		Status string `json:"status"` // of MIGRATION
		Device string `json:"device"` // of DEVICE_DELETED and DEVICE_UNPLUG_GUEST_ERROR
	} `json:"data"`
	ID     uint64          `json:"id"` // from 1 on
	Return json.RawMessage `json:"return"`
	Error  *refusal        `json:"error"`
}

// refusal is QEMU's error for a command.
type refusal struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

func (r *refusal) Error() string { return r.Desc }

type command struct {
	Execute   string `json:"execute"`
	Arguments any    `json:"arguments,omitempty"`
	ID        uint64 `json:"id"`
}

// newMonitor takes over the socket, which must be in the runtime's poller.
func newMonitor(conn *os.File) *monitor {
	m := &monitor{
		conn: conn, done: make(chan struct{}), ready: make(chan struct{}), stopped: make(chan struct{}),
		waiting: map[uint64]chan answer{}, unplugs: map[string]chan error{}, sending: make(chan struct{}, 1),
	}
	go m.read()
	return m
}

// close ends the connection, and waits for the goroutine that reads it.
func (m *monitor) close() {
	m.conn.Close()
	<-m.done
}

// shutdown returns why the guest has shut down. "" means that it has not.
func (m *monitor) shutdown() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reason
}

func (m *monitor) read() {
	defer close(m.done)
	lines := bufio.NewScanner(m.conn)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var a answer
		err := json.Unmarshal(lines.Bytes(), &a)
		if err == nil {
			err = m.take(a)
		}
		if err != nil {
			m.err = fmt.Errorf("QEMU's monitor: %w", err)
			m.conn.Close()
			return
		}
	}
	m.err = errors.New("QEMU has closed its monitor")
	if err := lines.Err(); err != nil && !errors.Is(err, io.EOF) {
		m.err = fmt.Errorf("QEMU's monitor: %w", err)
	}
}

// take hands an answer to its receiver. Of events, it keeps why the guest has shut down.
func (m *monitor) take(a answer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case a.Greeting != nil:
		select {
		case <-m.ready:
			return errors.New("a second greeting")
		default:
			close(m.ready)
		}
	case a.Event == "SHUTDOWN":
		m.reason = a.Data.Reason
	case a.Event == "STOP" && m.pausing:
		m.pausing = false
	case a.Event == "STOP":
		if !m.halted {
			m.halted = true
			close(m.stopped)
		}
	case a.Event == "MIGRATION":
		select {
		case m.migrations <- a.Data.Status:
		default: // no migration is in progress, or QEMU sends more than it has to
		}
	case a.Event == "DEVICE_DELETED":
		m.unpluggedLocked(a.Data.Device, nil)
	case a.Event == "DEVICE_UNPLUG_GUEST_ERROR":
		m.unpluggedLocked(a.Data.Device, errors.New("the guest keeps the device"))
	case a.Event != "":
	default:
		c := m.waiting[a.ID]
		if c == nil {
			return errors.New("an answer to no command")
		}
		delete(m.waiting, a.ID)
		c <- a
	}
	return nil
}

func (m *monitor) unpluggedLocked(id string, err error) {
	if c := m.unplugs[id]; c != nil {
		delete(m.unplugs, id)
		c <- err
	}
}

// unplug has the guest give up the functions of a device, and waits until QEMU has removed them all.
func (m *monitor) unplug(ctx context.Context, ids ...string) error {
	deleted := make([]chan error, len(ids))
	m.mu.Lock()
	for i, id := range ids {
		deleted[i] = make(chan error, 1)
		m.unplugs[id] = deleted[i]
	}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, id := range ids {
			delete(m.unplugs, id)
		}
	}()
	err := m.execute(ctx, "device_del", map[string]any{"id": ids[0]}, nil)
	if refused := (*refusal)(nil); errors.As(err, &refused) && refused.Class == "DeviceNotFound" {
		return nil // the guest has given it up after an earlier call had ended
	}
	if err != nil {
		return err
	}
	for _, c := range deleted {
		select {
		case err := <-c:
			if err != nil {
				return err
			}
		case <-m.done:
			return m.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// pause stops the guest.
func (m *monitor) pause(ctx context.Context) error {
	m.mu.Lock()
	m.pausing = true
	m.mu.Unlock()
	err := m.execute(ctx, "stop", nil, nil)
	if err != nil {
		m.mu.Lock()
		m.pausing = false
		m.mu.Unlock()
	}
	return err
}

// migrate has QEMU write its state to a file, or read it from there, all but the guest's memory. The guest must not run.
func (m *monitor) migrate(ctx context.Context, command string, state *os.File) error {
	on := func(name string) map[string]any { return map[string]any{"capability": name, "state": true} }
	capabilities := map[string]any{"capabilities": []any{on("x-ignore-shared"), on("events")}}
	if err := m.execute(ctx, "migrate-set-capabilities", capabilities, nil); err != nil {
		return err
	}
	if err := m.executeWith(ctx, "getfd", map[string]any{"fdname": "state"}, nil, state); err != nil {
		return err
	}
	states := make(chan string, 16) // QEMU sends some five
	m.mu.Lock()
	m.migrations = states
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.migrations = nil
	}()
	if err := m.execute(ctx, command, map[string]any{"uri": "fd:state"}, nil); err != nil {
		return errors.Join(err, m.execute(ctx, "closefd", map[string]any{"fdname": "state"}, nil))
	}
	for {
		select {
		case s := <-states:
			switch s {
			case "completed":
				return nil
			case "failed", "cancelled":
				return fmt.Errorf("QEMU's command %s has %s", command, s)
			}
		case <-m.done:
			return fmt.Errorf("QEMU's command %s: %w", command, m.err)
		case <-ctx.Done():
			return fmt.Errorf("QEMU's command %s: %w", command, context.Cause(ctx))
		}
	}
}

// negotiate must be called once, before all commands.
func (m *monitor) negotiate(ctx context.Context) error {
	select {
	case <-m.ready:
		return m.execute(ctx, "qmp_capabilities", nil, nil)
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// execute sends a command, waits for its answer and decodes that into result, unless that is nil.
func (m *monitor) execute(ctx context.Context, name string, arguments, result any) error {
	return m.executeWith(ctx, name, arguments, result)
}

// executeWith is execute with files that QEMU gets with the command.
func (m *monitor) executeWith(ctx context.Context, name string, arguments, result any, files ...*os.File) error {
	c := make(chan answer, 1)
	m.mu.Lock()
	m.next++
	id := m.next
	m.waiting[id] = c
	m.mu.Unlock()
	if err := m.send(ctx, command{name, arguments, id}, files); err != nil {
		m.mu.Lock()
		delete(m.waiting, id) // QEMU has no such command to answer
		m.mu.Unlock()
		return fmt.Errorf("QEMU's command %s: %w", name, err)
	}
	select {
	case a := <-c:
		if a.Error != nil {
			return fmt.Errorf("QEMU's command %s: %w", name, a.Error)
		}
		if result == nil {
			return nil
		}
		if err := json.Unmarshal(a.Return, result); err != nil {
			return fmt.Errorf("QEMU's command %s: %w", name, err)
		}
		return nil
	case <-m.done:
		return fmt.Errorf("QEMU's command %s: %w", name, m.err)
	case <-ctx.Done():
		return fmt.Errorf("QEMU's command %s: %w", name, context.Cause(ctx))
	}
}

// sendTime is how long QEMU may take to read a command. The socket has room for hundreds.
const sendTime = 10 * time.Second

// send sends a command. A part of one makes the connection useless.
func (m *monitor) send(ctx context.Context, c command, files []*os.File) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	select {
	case m.sending <- struct{}{}:
		defer func() { <-m.sending }()
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := m.conn.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return err
	}
	if err := m.write(append(line, '\n'), files); err != nil {
		m.conn.Close()
		return err
	}
	return nil
}

// write writes a line. The files go with its first byte.
func (m *monitor) write(line []byte, files []*os.File) error {
	if len(files) > 0 {
		conn, err := m.conn.SyscallConn()
		if err != nil {
			return err
		}
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		var sent int
		var sendErr error
		err = conn.Write(func(socket uintptr) bool {
			sent, sendErr = proc.SendSome(int(socket), line, fds...)
			return !errors.Is(sendErr, unix.EAGAIN)
		})
		runtime.KeepAlive(files)
		if err = errors.Join(err, sendErr); err != nil {
			return err
		}
		line = line[sent:]
	}
	_, err := m.conn.Write(line)
	return err
}
