package channel

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

func TestAMachineThatIsSilentHasHung(t *testing.T) {
	conn, machine := net.Pipe()
	defer machine.Close()
	go func() { // it takes what the host sends, and answers nothing
		for buf := make([]byte, 64); ; {
			if _, err := machine.Read(buf); err != nil {
				return
			}
		}
	}()
	c := config()
	if !c.EnableKeepAlive || c.KeepAliveInterval != interval || c.ConnectionWriteTimeout != silence {
		t.Errorf("the host does not ask for signs of life: %+v", c)
	}
	c.KeepAliveInterval, c.ConnectionWriteTimeout = time.Millisecond, time.Millisecond
	s, err := host(conn, c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	wait.For(t, "the end of the connection", s.Done())
}

func TestAMachineThatDoesNotBootHasHung(t *testing.T) {
	port, machine, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	defer machine.Close()
	if err := awaitSleep(t.Context(), port, time.Millisecond); err == nil || !strings.Contains(err.Error(), "it has taken longer than 1ms") {
		t.Errorf("a machine that says nothing: %v", err)
	}
}
