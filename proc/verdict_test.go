package proc_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// diary notes the calls of the functions that verdicts name.
type diary struct {
	mu      sync.Mutex
	entries []string
}

func (d *diary) write(entry string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = append(d.entries, entry)
}

func (d *diary) read() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.entries, "; ")
}

// keep decides that a child's end is written down.
func (d *diary) keep(c *proc.Child, app string) {
	c.Decide(func(e proc.Exit) { d.write(fmt.Sprintf("record %s %d %d", app, e.Code, e.Signal)) },
		func(proc.Exit) { d.write("announce " + app) })
}

// undecided starts a shell without a verdict, which is dropped with the test.
func undecided(t *testing.T, c *proc.Children, script string) *proc.Child {
	t.Helper()
	child, err := c.Make(func() (int, error) {
		p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", script}, &os.ProcAttr{Env: []string{"PATH=/usr/bin:/bin"}})
		if err != nil {
			return 0, err
		}
		pid := p.Pid
		return pid, p.Release()
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { child.Drop() })
	return child
}

func zombie(pid int) bool {
	s, err := proc.ReadStat(pid)
	return err == nil && s.State == 'Z'
}

func TestAnExitIsKeptUntilItsVerdict(t *testing.T) {
	c, d := newChildren(t), &diary{}
	child := undecided(t, c, "exit 7")
	wait.Until(t, "the end of the process", func() bool { return zombie(child.PID()) })
	if err := child.Signal(15); !errors.Is(err, proc.ErrGone) {
		t.Errorf("a signal to a zombie: %v", err)
	}
	child.Decide(func(e proc.Exit) {
		if !zombie(child.PID()) {
			t.Error("the process is reaped before its end is recorded")
		}
		d.write(fmt.Sprint("record ", e.Code))
	}, func(proc.Exit) {
		if zombie(child.PID()) {
			t.Error("the process is announced before it is reaped")
		}
		d.write("announce")
	})
	if e := child.Wait(); e.Code != 7 || e.Signal != 0 {
		t.Errorf("exit %+v", e)
	}
	if got := d.read(); got != "record 7; announce" {
		t.Errorf("the diary says %q", got)
	}
	if err := child.Signal(15); !errors.Is(err, proc.ErrGone) {
		t.Errorf("a signal to a reaped process: %v", err)
	}
	if f, err := child.Pidfd(); !errors.Is(err, proc.ErrGone) {
		t.Errorf("a pidfd %v of a reaped process: %v", f, err)
	}
}

func TestASignalledExitIsRecordedAsSuch(t *testing.T) {
	c, d := newChildren(t), &diary{}
	child := undecided(t, c, "exec sleep 1000")
	d.keep(child, "web")
	if err := child.Signal(15); err != nil {
		t.Fatal(err)
	}
	child.Wait()
	if got := d.read(); got != "record web 143 15; announce web" {
		t.Errorf("the diary says %q", got)
	}
}

func TestADroppedChildIsNobodysBusiness(t *testing.T) {
	c := newChildren(t)
	child := undecided(t, c, "exec sleep 1000")
	if e := child.Drop(); e.Signal != 9 || exists(child.PID()) {
		t.Errorf("exit %+v", e)
	}
	// One that has ended by itself keeps its status.
	child = undecided(t, c, "exit 3")
	wait.Until(t, "the end of the process", func() bool { return zombie(child.PID()) })
	if e := child.Drop(); e.Code != 3 {
		t.Errorf("exit %+v", e)
	}
	if all := c.All(); len(all) != 0 {
		t.Errorf("%d children are known", len(all))
	}
}

func TestAPidfdOfAChildOutlivesIt(t *testing.T) {
	c := newChildren(t)
	child := undecided(t, c, "exec sleep 1000")
	f, err := child.Pidfd()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	child.Drop()
	if _, err := f.Stat(); err != nil {
		t.Error(err)
	}
}

func TestOrphansBehindAnUndecidedZombieAreReapedAfterItsVerdict(t *testing.T) {
	c, d := newChildren(t), &diary{}
	child := undecided(t, c, "true")
	wait.Until(t, "the end of the process", func() bool { return zombie(child.PID()) })
	first, second := orphan(t, c, "exit 0"), orphan(t, c, "exit 0")
	d.keep(child, "web")
	child.Wait()
	wait.Until(t, "the end of the orphans", func() bool { return !exists(first) && !exists(second) })
}

func TestNoExitIsLostAmongManyBirths(t *testing.T) {
	c, d := newChildren(t), &diary{}
	const n = 40
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			child := undecided(t, c, "(true &); exit "+strconv.Itoa(i))
			if i%2 == 0 {
				wait.Until(t, "an end", func() bool { return zombie(child.PID()) })
			}
			d.keep(child, strconv.Itoa(i))
			if e := child.Wait(); e.Code != i {
				t.Errorf("%d ended with %+v", i, e)
			}
		})
	}
	group.Wait()
	for i := range n {
		if !strings.Contains(d.read(), fmt.Sprintf("record %d %d 0", i, i)) {
			t.Errorf("no record of %d", i)
		}
	}
}

// The kernel reports the zombie that nobody reaps, and not those after it.
func TestAnEndIsFoundBehindAnUndecidedZombie(t *testing.T) {
	c, d := newChildren(t), &diary{}
	first := undecided(t, c, "exit 1")
	wait.Until(t, "the end of the process", func() bool { return zombie(first.PID()) })
	second := start(t, c, "exit 2")
	if e := second.Wait(); e.Code != 2 {
		t.Errorf("exit %+v", e)
	}
	third := start(t, c, "exec sleep 1000")
	if err := third.Kill(); err != nil {
		t.Fatal(err)
	}
	third.Wait()
	d.keep(first, "web")
	first.Wait()
	if got := d.read(); got != "record web 1 0; announce web" {
		t.Errorf("the diary says %q", got)
	}
}

// A supervisor has a child for each app of its pod.
func TestAChildCostsNoDescriptor(t *testing.T) {
	c := newChildren(t)
	undecided(t, c, "exec sleep 1000") // os.StartProcess may keep descriptors for itself the first time
	before := descriptors(t)
	for range 5 {
		undecided(t, c, "exec sleep 1000")
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors are open, before five children %d", after, before)
	}
}

// descriptors returns how many descriptors this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// The exit code is lost, but nobody waits for ever.
func TestTheEndOfAChildThatOtherCodeReapsIsNotMissed(t *testing.T) {
	c := newChildren(t)
	for range 50 {
		child := undecided(t, c, "exec sleep 1000")
		reaped := make(chan error)
		go func() {
			_, err := syscall.Wait4(child.PID(), nil, 0, nil)
			reaped <- err
		}()
		if err := syscall.Kill(child.PID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-reaped
		child.Decide(nil, nil)
		if exit := child.Wait(); exit.Code != 137 && exit.Code != 255 {
			t.Errorf("%+v", exit)
		}
	}
}
