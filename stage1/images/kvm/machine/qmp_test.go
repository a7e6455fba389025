package machine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// monitored returns a monitor and QEMU's end of its connection.
func monitored(t *testing.T) (*monitor, net.Conn) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(pair[1]), "qemu")
	conn, err := net.FileConn(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	m := newMonitor(os.NewFile(uintptr(pair[0]), "monitor"))
	t.Cleanup(func() { conn.Close(); m.close() })
	return m, conn
}

// say sends lines as QEMU does.
func say(t *testing.T, conn net.Conn, lines ...string) {
	t.Helper()
	if _, err := conn.Write([]byte(strings.Join(lines, "\r\n") + "\r\n")); err != nil {
		t.Error(err)
	}
}

func TestCommandsGetTheirAnswersInAnyOrder(t *testing.T) {
	m, qemu := monitored(t)
	say(t, qemu, `{"QMP":{"version":{},"capabilities":[]}}`)
	go func() {
		lines := bufio.NewScanner(qemu)
		var ids []string
		for lines.Scan() {
			var c command
			if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
				t.Error(err)
			}
			id, _ := json.Marshal(c.ID)
			switch c.Execute {
			case "qmp_capabilities":
				say(t, qemu, `{"timestamp":{},"event":"RESUME"}`, `{"return":{},"id":`+string(id)+`}`)
			case "fail":
				say(t, qemu, `{"error":{"class":"GenericError","desc":"no such thing"},"id":`+string(id)+`}`)
			default:
				if ids = append(ids, string(id)); len(ids) == 2 {
					say(t, qemu, `{"return":{"id":`+ids[1]+`},"id":`+ids[1]+`}`, `{"return":{"id":`+ids[0]+`},"id":`+ids[0]+`}`)
				}
			}
		}
	}()
	if err := m.negotiate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.execute(t.Context(), "fail", nil, nil); err == nil || err.Error() != "QEMU's command fail: no such thing" {
		t.Errorf("the error is %v", err)
	}
	got := make(chan uint64, 2)
	for range 2 {
		go func() {
			var answer struct{ ID uint64 }
			if err := m.execute(t.Context(), "query", nil, &answer); err != nil {
				t.Error(err)
			}
			got <- answer.ID
		}()
	}
	if a, b := wait.For(t, "an answer", got), wait.For(t, "an answer", got); a+b != 3+4 || a == b {
		t.Errorf("the answers are of the commands %d and %d", a, b)
	}
}

func TestTheMonitorOfAHostileQEMUEnds(t *testing.T) {
	for name, lines := range map[string]string{
		"no JSON":           "hello\n",
		"a long line":       strings.Repeat(" ", maxLine+1),
		"no question asked": `{"return":{},"id":1}` + "\n",
		"two greetings":     `{"QMP":{}}` + "\n" + `{"QMP":{}}` + "\n",
		"another type":      `{"return":{},"id":"a"}` + "\n",
		"nothing":           "",
	} {
		t.Run(name, func(t *testing.T) {
			m, qemu := monitored(t)
			go func() {
				_, _ = qemu.Write([]byte(lines))
				if lines == "" {
					qemu.Close()
				}
			}()
			wait.For(t, "the connection ends", m.done)
			if err := m.execute(t.Context(), "query", nil, nil); err == nil {
				t.Error("a command was answered")
			}
			if err := m.negotiate(t.Context()); err == nil {
				t.Error("negotiated")
			}
		})
	}
}

func TestACommandThatIsNotAnsweredEndsWithItsContext(t *testing.T) {
	m, qemu := monitored(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	failed := make(chan error)
	go func() { failed <- m.execute(ctx, "query", nil, nil) }()
	line, err := bufio.NewReader(qemu).ReadString('\n')
	if err != nil || !strings.Contains(line, `"id":1`) {
		t.Fatalf("QEMU got %q: %v", line, err)
	}
	cancel(why)
	if err := wait.For(t, "the command fails", failed); !errors.Is(err, why) {
		t.Errorf("the error is %v", err)
	}
	// The answer may come later.
	say(t, qemu, `{"return":{},"id":1}`, `{"event":"SHUTDOWN","data":{"reason":"guest-reset"}}`)
	wait.Until(t, "the event was read", func() bool { return m.shutdown() == "guest-reset" })
}

// What QEMU sends is a guest's if the guest has taken QEMU over.
func FuzzMonitor(f *testing.F) {
	f.Add([]byte(`{"QMP":{"version":{}}}` + "\n" + `{"return":{},"id":1}` + "\n"))
	f.Add([]byte(`{"event":"SHUTDOWN","data":{"guest":true,"reason":"guest-shutdown"}}` + "\n"))
	f.Add([]byte(`{"event":"STOP"}` + "\n" + `{"event":"STOP"}` + "\n"))
	f.Add([]byte(`{"error":{"class":"","desc":""},"id":18446744073709551615}` + "\n"))
	f.Fuzz(func(t *testing.T, lines []byte) {
		m, qemu := monitored(t)
		go func() {
			_, _ = qemu.Write(lines)
			qemu.Close()
		}()
		_ = m.execute(t.Context(), "query", nil, nil)
		wait.For(t, "the connection ends", m.done)
	})
}
