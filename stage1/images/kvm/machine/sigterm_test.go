package machine

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// A host that shuts down sends SIGTERM to all processes. QEMU, which has the mask of its thread (see proc.OnThread), would end at once, and what the
// guest has not written to its disks would be lost: the supervisor ends the machine.
func TestTheProgramsOfAMachineOutliveTheSIGTERMOfAShutdown(t *testing.T) {
	children := proc.NewChildren()
	t.Cleanup(func() { _ = children.Close(context.Background()) })
	p, err := start(&Config{Children: children}, &program{argv: []string{"/bin/sleep", "60"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.end()
	defer p.Kill()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, mask, _ := strings.Cut(string(text), "SigBlk:\t")
	blocked, err := strconv.ParseUint(strings.Fields(mask)[0], 16, 64)
	if err != nil || blocked&(1<<(unix.SIGTERM-1)) == 0 {
		t.Errorf("it blocks the signals %#x, %v, and not SIGTERM", blocked, err)
	}
}
