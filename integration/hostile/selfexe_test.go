package hostile

import (
	"strings"
	"testing"
)

// A program called /proc/self/exe is the runtime's, which is about to become the container's.
func TestTheRuntimesProgramIsNoProgramOfAContainer(t *testing.T) {
	program := []string{"/proc/self/exe", "state"}
	ran := func(l *lab, err error) {
		// A runtime may report on the output that there is no such program.
		if said := l.said.take(); err == nil && !strings.Contains(said, "no such file or directory") {
			l.got("the program of the runtime was executed: %.80s", said)
		}
	}
	hostile(t, attack{classes: "class of CVE-2019-5736", name: "/proc/self/exe is the program", modes: []mode{
		{name: "of an exec", proofs: []string{nativeOld}, try: func(l *lab) {
			task := l.attacker(sleeper())
			for range 2 { // by a plan, and by init
				l.once(func() { ran(l, l.exec(task, program)) })
			}
		}},
		{name: "of a container", proofs: []string{nativeOld}, try: func(l *lab) {
			for range 2 {
				l.once(func() { ran(l, l.victim(spec{image: plainImage, args: program})) })
			}
		}},
	}})
}
