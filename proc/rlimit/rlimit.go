// Package rlimit lists the limits with which this process was started. It is not in package proc, because the programs
// that containerd executes need no limits.
package rlimit

import (
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc/nofile"
)

// Limit is one limit of a process, as in setrlimit(2). Its name has no RLIMIT_.
type Limit struct {
	Name string
	unix.Rlimit
}

// names are the names of the limits. Their numbers are the indexes.
var names = []string{
	"CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE",
	"MEMLOCK", "AS", "LOCKS", "SIGPENDING", "MSGQUEUE", "NICE", "RTPRIO", "RTTIME",
}

// All returns the limits with which this process was started: the Go runtime has raised its soft limit of open files.
func All() (all []Limit) {
	for i, name := range names {
		l := Limit{Name: name}
		if unix.Getrlimit(i, &l.Rlimit) != nil {
			continue
		}
		if i == unix.RLIMIT_NOFILE {
			l.Cur, l.Max = nofile.Original[0], nofile.Original[1]
		}
		all = append(all, l)
	}
	return all
}
