package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// progress shows the current step to a person. On a terminal it changes one line. Elsewhere
// it prints a line for each title and one every ten seconds.
type progress struct {
	out      io.Writer
	terminal bool
}

func newProgress(f *os.File) progress {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return progress{out: f, terminal: err == nil}
}

// begin announces work of total steps. The caller calls step with the number of finished steps,
// and done at the end.
func (p progress) begin(title string, total int) (step func(int), done func()) {
	start := time.Now()
	if p.terminal {
		show := func(i int) { fmt.Fprintf(p.out, "\r\x1b[K==> %s  %d/%d", title, i, total) }
		show(0)
		return show, func() {
			fmt.Fprintf(p.out, "\r\x1b[K==> %s  %s\n", title, time.Since(start).Round(time.Second))
		}
	}
	fmt.Fprintf(p.out, "==> %s\n", title)
	last := start
	return func(i int) {
			if time.Since(last) >= 10*time.Second {
				last = time.Now()
				fmt.Fprintf(p.out, "    %d of %d\n", i, total)
			}
		}, func() {
			fmt.Fprintf(p.out, "    took %s\n", time.Since(start).Round(time.Second))
		}
}
