package proc_test

import (
	"bufio"
	"fmt"
	"os"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// family is a parent that starts a process, and ends when the test lets it go on.
type family struct {
	parent  *proc.Child
	pid     int // of the process
	started uint64
	goOn    *os.File
}

// parent is a program in Perl, because a shell would reap its child unasked.
const parent = `$| = 1; my $pid = fork() // die; exec "/bin/sh", "-c", $ARGV[0] if !$pid; print "$pid\n"; <STDIN>; waitpid($pid, 0) if $ARGV[1]`

func newFamily(t *testing.T, c *proc.Children, process string, reaps bool) *family {
	t.Helper()
	in, goOn, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = goOn.Close() })
	said, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	f := &family{goOn: goOn}
	argv := []string{"/usr/bin/perl", "-e", parent, process}
	if reaps {
		argv = append(argv, "and reap it")
	}
	f.parent, err = c.Start(argv,
		&os.ProcAttr{Files: []*os.File{in, out, os.Stderr}, Env: []string{"PATH=/usr/bin:/bin"}})
	_ = in.Close()
	_ = out.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscan(bufio.NewReader(said), &f.pid); err != nil {
		t.Fatal(err)
	}
	if f.started, err = proc.StartTime(f.pid); err != nil {
		t.Fatal(err)
	}
	return f
}

// proceed lets the parent end, and returns when it has.
func (f *family) proceed() { _ = f.goOn.Close(); f.parent.Wait() }

func TestAProcessThatBecomesAChildIsAdoptedThen(t *testing.T) {
	for name, process := range map[string]string{
		"alive":             "sleep 0.3; exit 42",
		"when it has ended": "exit 42",
	} {
		t.Run(name, func(t *testing.T) {
			c := newChildren(t)
			release := c.Expect()
			f := newFamily(t, c, process, false)
			var recorded proc.Exit
			ended := make(chan proc.Exit, 1)
			c.AdoptLater(f.pid, f.started, func(e proc.Exit) {
				if !zombie(f.pid) {
					t.Error("it was reaped before it was recorded")
				}
				recorded = e
			}, func(e proc.Exit) { ended <- e })
			release()
			f.proceed()
			if e := wait.For(t, "the exit", ended); e.Code != 42 || recorded != e {
				t.Errorf("ended %+v, recorded %+v, want code 42", e, recorded)
			}
			if exists(f.pid) {
				t.Error("it was not reaped")
			}
		})
	}
}

func TestCancelSaysWhetherTheProcessHasBecomeAChild(t *testing.T) {
	c := newChildren(t)
	release := c.Expect()
	defer release()
	never := func(proc.Exit) { t.Error("a function of a cancelled process is called") }

	reaped := newFamily(t, c, "exit 3", true)
	cancel := c.AdoptLater(reaped.pid, reaped.started, never, never)
	reaped.proceed()
	if !cancel() {
		t.Error("a process that its parent has reaped counts as a child")
	}

	ended := make(chan proc.Exit, 1)
	left := newFamily(t, c, "sleep 0.3; exit 4", false)
	cancel = c.AdoptLater(left.pid, left.started, nil, func(e proc.Exit) { ended <- e })
	left.proceed()
	if cancel() {
		t.Error("a process whose parent has ended does not count as a child")
	}
	if e := wait.For(t, "the exit", ended); e.Code != 4 {
		t.Errorf("exit %+v", e)
	}

	started := start(t, c, "exec sleep 60")
	cancel = c.AdoptLater(started.PID(), started.StartTime(), never, never)
	if !cancel() {
		t.Error("a child that was started is adopted")
	}
}

// Execs that run at the same time: the process of one ends before that of another is awaited.
func TestAProcessThatItsParentHasReapedIsNoChildAfterTheNextAdoptLater(t *testing.T) {
	c := newChildren(t)
	release := c.Expect()
	defer release()
	never := func(proc.Exit) { t.Error("a function of a cancelled process is called") }
	reaped, next := newFamily(t, c, "exit 3", true), newFamily(t, c, "exit 4", true)
	cancel := c.AdoptLater(reaped.pid, reaped.started, never, never)
	reaped.proceed()
	cancelNext := c.AdoptLater(next.pid, next.started, never, never)
	if !cancel() {
		t.Error("a process that its parent has reaped counts as a child")
	}
	next.proceed()
	if !cancelNext() {
		t.Error("the next process counts as a child")
	}
}

// When the pid becomes that of a child, it may belong to another process.
func TestALaterProcessWithThePidIsNotAdopted(t *testing.T) {
	c := newChildren(t)
	release := c.Expect()
	f := newFamily(t, c, "exit 0", false)
	never := func(proc.Exit) { t.Error("it is adopted") }
	c.AdoptLater(f.pid, f.started+1, never, never)
	release()
	f.proceed()
	wait.Until(t, "the orphan is reaped", func() bool { return !exists(f.pid) })
}
