package stage1

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

// exitOfEnter executes enter and returns the exit of the process that it reports, as a pod
// learns of it.
func (p *fakePod) exitOfEnter(t *testing.T) (abi.Status, error) {
	t.Helper()
	release := children.Expect()
	defer release()
	q, err := p.Enter(t.Context(), p.call(abi.Enter), [3]*os.File{})
	if err != nil {
		return abi.Status{}, err
	}
	ended := q.Ended
	if q.Recorder == pod.RecordedByStage0 {
		own := make(chan abi.Status, 1)
		ended = own
		if err := children.Adopt(q.PID, q.StartTime, nil, func(e proc.Exit) { own <- abi.Status(e) }); err != nil {
			return abi.Status{}, err
		}
	}
	release()
	if ended == nil {
		return abi.Status{}, fmt.Errorf("its exit is %s's to record", q.Recorder)
	}
	select {
	case st := <-ended:
		return st, nil
	case <-time.After(wait.Patience):
		return abi.Status{}, fmt.Errorf("no exit of process %d, which is %s's to record", q.PID, q.Recorder)
	}
}

// twelveLines is the first enter that an author writes: it forks, reports the child and
// returns. A shell would reap the child by itself.
const twelveLines = `exec perl -e '
use strict;
my $pid = fork() // die "fork: $!";
if ($pid == 0) {
	select(undef, undef, undef, rand(0.002)) if rand() < 0.5;
	exit 44;
}
open(my $ready, ">&=", $ENV{RKT_READY_FD}) or die "ready: $!";
print $ready "{\"pid\": $pid}\n";
close $ready;
select(undef, undef, undef, rand(0.002)) if rand() < 0.5;
exit 0;
'`

func TestAnEnterThatForksReportsAndReturnsKeepsTheExitCode(t *testing.T) {
	p := newFakePod(t, stage1test.Scripts{abi.Enter: twelveLines})
	wrong := map[string]int{}
	for range 1000 {
		if st, err := p.exitOfEnter(t); err != nil || st.Code != 44 {
			wrong[fmt.Sprint(st.Code, " ", err)]++
		}
	}
	if len(wrong) > 0 {
		t.Errorf("in place of exit code 44: %v", wrong)
	}
}

func TestTheExitOfAProcessBelowItsEnterIsKnownWhenThatEnds(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   int
	}{
		"the call waits for it":              {`(sleep 0.1; exit 7) & ready $!; wait $!`, 7},
		"the call dies of a signal":          {`sleep 0.1 & ready $!; wait $!; kill -TERM $$`, 143},
		"the call leaves it running":         {`(sleep 0.3; exit 9) 3>&- 4>&- & ready $!; exit 0`, 9},
		"the call leaves it after it ended":  {`exec perl -e 'if (!($p = fork)) { exit 44 } open(R, ">&=4"); syswrite(R, "{\"pid\": $p}\n"); select(undef, undef, undef, 0.2)'`, 44},
		"what it waits for leaves it":        {`sh -c '(sleep 0.3; exit 5) 3>&- 4>&- & echo "{\"pid\": $!}" >&4; sleep 0.1'; exit 0`, 5},
		"it waits, and says so":              {`(exit 7) & pid=$!; wait $pid || code=$?; echo "{\"pid\": $pid, \"starttime\": 1, \"recorder\": \"call\"}" >&4; exit $code`, 7},
		"it leaves it, and says so":          {`(sleep 0.3; exit 3) 3>&- 4>&- & echo "{\"pid\": $!, \"recorder\": \"stage0\"}" >&4; sleep 0.1; exit 0`, 3},
		"it was reaped, and the call failed": {`(exit 7) & pid=$!; wait $pid || code=$?; echo "{\"pid\": $pid, \"starttime\": 1}" >&4; exit $code`, 7},
		"it was reaped, and nothing is told": {`true & pid=$!; wait $pid; echo "{\"pid\": $pid, \"starttime\": 1}" >&4`, 137},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFakePod(t, stage1test.Scripts{abi.Enter: "code=0\n" + c.script})
			if st, err := p.exitOfEnter(t); err != nil || st.Code != c.want {
				t.Errorf("exit %+v, %v; want code %d", st, err, c.want)
			}
		})
	}
}

// kernelKeepsExits reports whether the kernel keeps the exit of a process that was reaped.
func kernelKeepsExits(t *testing.T) bool {
	t.Helper()
	var pidfd *proc.Process
	child, err := children.StartThen([]string{"/bin/sh", "-c", "exit 44"}, &os.ProcAttr{}, func(c *proc.Child, _ proc.Exit) {
		pidfd, _ = proc.Open(c.PID(), 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	child.Wait()
	if pidfd == nil {
		t.Fatal("no pidfd of a child that is not reaped")
	}
	defer pidfd.Close()
	e, ok := pidfd.Exit()
	return ok && e.Code == 44
}

// A shell reaps its children whenever it likes. Where the kernel keeps their exit codes, an
// enter that returns 0 does not hide them.
func TestAnEnterThatReapsAFailureAndReturnsSuccess(t *testing.T) {
	p := newFakePod(t, stage1test.Scripts{
		// The parent of the second script's process is a shell that outlives the call.
		abi.Enter: `if mkdir once; then (sleep 0.1; exit 44) & ready $!; wait $! || exit 0; fi
sh -c '(sleep 0.3; exit 45) 3>&- 4>&- & echo "{\"pid\": $!}" >&4; exec 3>&- 4>&-; wait $!' & sleep 0.1; exit 0`,
	})
	tells := kernelKeepsExits(t)
	for _, c := range []struct{ told, untold int }{{44, 0}, {45, 137}} {
		want := c.untold
		if tells {
			want = c.told
		}
		if st, err := p.exitOfEnter(t); err != nil || st.Code != want {
			t.Errorf("exit %+v, %v; want code %d", st, err, want)
		}
	}
}

func TestAWrongRecorderIsRefused(t *testing.T) {
	const (
		child   = `sleep 1000 3>&- 4>&- & pid=$!` + "\n"
		orphan  = `pid=$(sleep 1000 >/dev/null 3>&- 4>&- & echo $!)` + "\n"
		running = `echo x >ask; read pid <answer` + "\n" // as the supervisor's child
	)
	for name, c := range map[string]struct {
		call   abi.Entrypoint
		script string
		says   string
		want   string
	}{
		"a word that is none":                  {abi.Enter, child, "shim", `recorder "shim", which is none of stage1, stage0 and call`},
		"stage1, and the call's":               {abi.Enter, child, "stage1", "that process is a process that the call has started"},
		"stage1, and the call itself":          {abi.Enter, "pid=$$\n", "stage1", "that process is the process of the call"},
		"stage1, and stage 0's":                {abi.Enter, orphan, "stage1", "that process is a child of stage 0"},
		"call, and stage 0's":                  {abi.Enter, orphan, "call", "that process is a child of stage 0"},
		"call, and the stage1's":               {abi.Enter, running, "call", "that process is a child of another process"},
		"stage0, and the stage1's":             {abi.Enter, running, "stage0", "that process is a child of another process"},
		"stage0, and the call itself":          {abi.Enter, "pid=$$\n", "stage0", "that process is the process of the call"},
		"stage0, and the call has reaped it":   {abi.Enter, "true & pid=$!; wait $pid\n", "stage0", "that process has been reaped"},
		"stage0, and the call does not return": {abi.Enter, child + "stay=1; ", "stage0", "no answer within 1s"},
		"app/add, and the call":                {abi.AppAdd, "sleep 0.01 & pid=$!; wait $pid\n", "call", "and has ended"},
		"app/add, and the call itself":         {abi.AppAdd, "pid=$$\n", "", "and has ended"},
		"app/add, stage1, and stage 0's":       {abi.AppAdd, child, "stage1", "that process is a child of stage 0"},
		"app/add, stage0, and the stage1's":    {abi.AppAdd, running, "stage0", "that process is a child of another process"},
	} {
		t.Run(name, func(t *testing.T) {
			says, rest := "", ""
			if c.says != "" {
				says = `, \"recorder\": \"` + c.says + `\"`
			}
			if c.script == child && c.call == abi.Enter {
				rest = "\nsleep 0.3" // it is still the call's when stage 0 looks
			}
			p := newFakePod(t, stage1test.Scripts{
				abi.Run: `mkfifo ask answer; ready $$; while :; do read x <ask; sleep 1000 3>&- 5>&- 6>&- & echo $! >answer; done`,
				c.call:  c.script + `echo "{\"pid\": $pid, \"starttime\": $(cut -d' ' -f22 /proc/$pid/stat 2>/dev/null || echo 1)` + says + `}" >&4; [ -z "${stay-}" ] || wait` + rest,
			})
			sup := p.run(t, p.call(abi.Run))
			defer func() { _ = unix.Kill(-sup.PID, unix.SIGKILL) }()
			if strings.HasSuffix(c.want, "within 1s") {
				p.hurry(time.Second)
			}
			release := children.Expect()
			defer release()
			verb := p.Enter
			if c.call == abi.AppAdd {
				verb = p.Add
			}
			q, err := verb(t.Context(), p.call(c.call), [3]*os.File{})
			if err == nil {
				t.Fatalf("no error; it is %s's to record", q.Recorder)
			}
			expectError(t, err, -1, nil, c.want)
		})
	}
}
