package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// leave sets the limit of the supervisor so that it can open n more files. lift
// removes the limit.
func (p *pod) leave(n int) (lift func()) {
	p.t.Helper()
	pid := p.run.Process.Pid
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	must(p.t, err)
	taken := map[string]bool{}
	for _, fd := range open {
		taken[fd.Name()] = true
	}
	limit := 0
	for ; n > 0 || taken[fmt.Sprint(limit)]; limit++ {
		if !taken[fmt.Sprint(limit)] {
			n--
		}
	}
	var old unix.Rlimit
	must(p.t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old))
	must(p.t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(limit), Max: old.Max}, nil))
	return func() { must(p.t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &old, nil)) }
}

func TestASupervisorWithoutDescriptorsSaysSo(t *testing.T) {
	p := startPod(t)
	p.add(p.request("web", "sleep", "1000"))
	p.expect(0, abi.AppStart, "web")
	failed := 0
	for n := 1; n < 24; n++ {
		lift := p.leave(n)
		id := fmt.Sprint("e", n)
		a := p.enter("web", id, [3]*os.File{}, "true")
		stop := p.do(abi.AppStop, "absent")
		lift()
		switch {
		case a.code == 0:
			p.exited("web", id, 0, 0)
		case !strings.Contains(a.text, "too many open files"):
			t.Errorf("with %d descriptors: exit code %d: %s", n, a.code, a.text)
		default:
			failed++
		}
		// If the supervisor had died, this call would have succeeded.
		if stop.code != abi.ExitNotFound && !strings.Contains(stop.text, "too many open files") {
			t.Errorf("with %d descriptors: app/stop: exit code %d: %s", n, stop.code, stop.text)
		}
	}
	if failed == 0 {
		t.Error("nothing has failed for want of descriptors")
	}
	if a := p.enter("web", "last", [3]*os.File{}, "true"); a.code != 0 {
		t.Errorf("with all descriptors: exit code %d: %s", a.code, a.text)
	}
	p.exited("web", "last", 0, 0)
}
