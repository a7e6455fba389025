package fork

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seqpacket"
)

// A helper that is killed may have made the second child already. The second child also has
// the socket of the reports, and waits, so the socket does not end.
func TestAHelperThatIsKilledEndsTheStart(t *testing.T) {
	for _, reported := range []bool{false, true} {
		name := map[bool]string{false: "before its report", true: "after its report"}[reported]
		t.Run(name, func(t *testing.T) {
			ours, theirs, err := seqpacket.Pair("a socket for a new process")
			if err != nil {
				t.Fatal(err)
			}
			defer ours.Close()
			defer theirs.Close()
			helper, second := execute(t, "sleep", "1000"), execute(t, "sleep", "1000")
			b := &starting{p: &Process{Joins: []Join{{Flags: unix.CLONE_NEWPID}}}, words: ours.File, helper: helper}
			if reported {
				tell(t, theirs, report{step: cloned, value: uint32(second)})
			}
			done := make(chan error, 1)
			go func() { done <- b.attend(t.Context()) }()
			if err := syscall.Kill(helper, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != errHelper {
				t.Errorf("error %v, want %v", err, errHelper)
			}
			b.undo()
			if !reported { // the parent does not know its pid
				_ = syscall.Kill(second, syscall.SIGKILL)
				reap(second)
			}
			if err := syscall.Kill(second, 0); err != syscall.ESRCH {
				t.Errorf("the second child is still there: %v", err)
			}
		})
	}
}

// When a helper ends as it should, no report of the second child is lost.
func TestTheEndOfTheHelperLeavesTheReportsOfItsChild(t *testing.T) {
	ours, theirs, err := seqpacket.Pair("a socket for a new process")
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	b := &starting{p: &Process{Joins: []Join{{Flags: unix.CLONE_NEWPID}}}, words: ours.File, helper: execute(t, "true")}
	tell(t, theirs, report{step: cloned, value: 1})
	done := make(chan error, 1)
	go func() { done <- errors.Join(b.attend(t.Context()), b.executed()) }()
	word := make([]byte, 1)
	if _, err := theirs.Read(word); err != nil {
		t.Fatal(err)
	}
	tell(t, theirs, report{step: stepSession, errno: uint32(unix.EPERM)})
	if err := <-done; err == nil || err.Error() != "leading a session: operation not permitted" {
		t.Errorf("error %v", err)
	}
}

// The caller may go at the moment at which the helper has ended and its report was not read yet.
func TestAStartThatIsGivenUpAfterItsHelperHasEndedKillsTheProcess(t *testing.T) {
	ours, theirs, err := seqpacket.Pair("a socket for a new process")
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	second := execute(t, "sleep", "1000")
	b := &starting{p: &Process{Joins: []Join{{Flags: unix.CLONE_NEWPID}}}, words: ours.File, helper: execute(t, "true")}
	tell(t, theirs, report{step: cloned, value: uint32(second)})
	if err := ours.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := b.attend(t.Context()); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	b.undo()
	if err := syscall.Kill(second, 0); err != syscall.ESRCH {
		_ = syscall.Kill(second, syscall.SIGKILL)
		reap(second)
		t.Errorf("the process is still there: %v", err)
	}
}

// execute starts a program that the caller reaps.
func execute(t *testing.T, args ...string) int {
	t.Helper()
	pid, err := syscall.ForkExec(busybox, args, &syscall.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func tell(t *testing.T, words *os.File, r report) {
	t.Helper()
	var b []byte
	for _, n := range []uint32{uint32(r.step), r.errno, r.value} {
		b = binary.NativeEndian.AppendUint32(b, n)
	}
	if _, err := words.Write(b); err != nil {
		t.Fatal(err)
	}
}
