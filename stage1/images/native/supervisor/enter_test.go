package supervisor

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

// A pod may fail a probe for years, each time with another path.
func TestReasonsForInitAreCountedByTheirKind(t *testing.T) {
	var log strings.Builder
	s := &Supervisor{Options: Options{Log: &log}, byInit: map[string]int{}}
	for i := range 100 {
		err := &fork.Error{Doing: fmt.Sprintf("executing /probe/%d", i), Errno: unix.ENOENT}
		s.countInit("execs", kindOf(err), err.Error())
		s.countInit("execs", "a personality", "a personality")
	}
	if len(s.byInit) != 2 {
		t.Errorf("%d kinds: %v", len(s.byInit), s.byInit)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 2*7 || !strings.Contains(log.String(), "64 execs by init: executing /probe/63: no such file") {
		t.Errorf("%d lines:\n%s", lines, &log)
	}
}
