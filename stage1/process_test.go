package stage1

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
	"golang.org/x/sys/unix"
)

func TestTheSupervisorStaysAndItsEndIsSeen(t *testing.T) {
	p := newFakePod(t, stage1test.Scripts{
		abi.Run: `trap 'echo last words >&2; exit 3' TERM; sleep 1000 & echo exit app-1 >&6; echo to stdout; echo to stderr >&2; ready $$; wait`,
	})
	sup := p.run(t, p.call(abi.Run))
	if start, err := proc.StartTime(sup.PID); err != nil || sup.Leader.PID != sup.PID || sup.Leader.StartTime != start {
		t.Errorf("supervisor %+v, %v", sup, err)
	}
	buf := make([]byte, 100)
	if n, err := sup.Notices.Read(buf); err != nil || string(buf[:n]) != "exit app-1\n" {
		t.Errorf("notice %q, %v", buf[:n], err)
	}
	select {
	case <-sup.Done:
		t.Fatal("it has ended")
	default:
	}
	// The supervisor is a shell that leaves a sleep behind, which keeps the pipes
	// open. Nothing may wait for that.
	if err := sup.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-sup.Done
	if proc.Alive(sup.PID, sup.Leader.StartTime) {
		t.Error("Done was closed before the end")
	}
	if err := sup.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("a signal after the end: %v", err)
	}
	if err := unix.Kill(-sup.PID, unix.SIGKILL); err != nil {
		t.Errorf("the group of the supervisor was not left alone: %v", err)
	}
	if n, err := sup.Notices.Read(buf); err != io.EOF {
		t.Errorf("notice %q, %v", buf[:n], err)
	}
	entries, err := journal.Read(p.dir)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v", entries, err)
	}
	if e := entries[0]; e.State != journal.Ready || e.Entrypoint != abi.Run || e.PID != sup.PID || e.Code != 0 {
		t.Errorf("journal: %+v", e)
	}
	if e := entries[1]; e.State != "" || e.Code != 3 || !strings.Contains(e.Error, "to stdout") || !strings.Contains(e.Error, "last words") {
		t.Errorf("journal: %+v", e)
	}
}

func TestASupervisorThatTalksIsNeverBlocked(t *testing.T) {
	p := newFakePod(t, stage1test.Scripts{
		abi.Run: `ready $$; yes | head -c 3000000 >&2; yes | head -c 3000000; echo done >&6; exec sleep 1000`,
	})
	sup := p.run(t, p.call(abi.Run))
	_ = sup.Notices.SetReadDeadline(time.Now().Add(wait.Patience))
	buf := make([]byte, 10)
	if n, err := sup.Notices.Read(buf); err != nil || string(buf[:n]) != "done\n" {
		t.Errorf("%q, %v", buf[:n], err)
	}
}

func TestTheLockIsTheSupervisors(t *testing.T) {
	p := newFakePod(t, nil)
	lock, err := os.Open(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	sup, err := p.Run(t.Context(), p.call(abi.Run), lock)
	if err != nil {
		t.Fatal(err)
	}
	defer sup.Notices.Close()
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	look, err := os.Open(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer look.Close()
	if err := unix.Flock(int(look.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Errorf("the pod is not locked: %v", err)
	}
	if err := sup.Kill(); err != nil {
		t.Fatal(err)
	}
	<-sup.Done
	if err := unix.Flock(int(look.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		t.Errorf("the lock outlives the supervisor: %v", err)
	}
}

func TestWhoRecordsTheExitOfAnApp(t *testing.T) {
	p := newFakePod(t, stage1test.Scripts{
		// This supervisor starts the apps itself. app/add talks to it by fifos.
		abi.Run:    `mkfifo ask answer; ready $$; while :; do read x <ask; sleep 1000 3>&- 5>&- 6>&- & echo $! >answer; done`,
		abi.AppAdd: `echo x >ask; read pid <answer; ready "$pid"`,
		abi.Enter:  `sleep 1000 & ready $!`,
	})
	sup := p.run(t, p.call(abi.Run))
	defer func() { _ = unix.Kill(-sup.PID, unix.SIGKILL) }()
	q, err := p.Add(t.Context(), p.call(abi.AppAdd), [3]*os.File{})
	if err != nil {
		t.Fatal(err)
	}
	if q.Recorder != pod.RecordedByStage1 || q.Ended != nil {
		t.Errorf("the supervisor's child is recorded by %v", q.Recorder)
	}
	if start, err := proc.StartTime(q.PID); err != nil || start != q.StartTime {
		t.Errorf("start time %d, want %d, %v", q.StartTime, start, err)
	}
	p = newFakePod(t, nil)
	release := children.Expect()
	q, err = p.Add(t.Context(), p.call(abi.AppAdd), [3]*os.File{})
	if err != nil {
		t.Fatal(err)
	}
	if q.Recorder != pod.RecordedByStage0 {
		t.Errorf("an orphan is recorded by %v", q.Recorder)
	}
	ended := make(chan proc.Exit, 1)
	if err := children.Adopt(q.PID, q.StartTime, nil, func(e proc.Exit) { ended <- e }); err != nil {
		t.Fatal(err)
	}
	release()
	endOf(t, q)
	if e := <-ended; e.Signal != 9 {
		t.Errorf("exit %+v", e)
	}
}

func TestAnEnterThatStaysDeliversTheExit(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   abi.Status
	}{
		"with its exit code":       {`(read x; exit 42) 3>&- 4>&- & ready $!; wait $!`, abi.Status{Code: 42}},
		"itself, by a signal":      {`(read x) & ready $!; wait; kill -TERM $$`, abi.Status{Code: 143, Signal: 15}},
		"through another shell":    {`sh -c '(read x; exit 7) & echo "{\"pid\": $!}" >&4; wait $!' <&0`, abi.Status{Code: 7}},
		"or leaves it after all":   {`(read x; exit 9) 3>&- 4>&- <&0 & ready $!; sleep 0.3; exit 0`, abi.Status{Code: 9}},
		"as the process that runs": {`ready $$; read x; exit 11`, abi.Status{Code: 11}},
	} {
		t.Run(name, func(t *testing.T) {
			// In a shell a background process has /dev/null as its input.
			p := newFakePod(t, stage1test.Scripts{abi.Enter: "exec 7<&0\n" + strings.ReplaceAll(c.script, "read x", "read x <&7 || true")})
			p.hurry(10 * time.Second)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			q, err := p.Enter(t.Context(), p.call(abi.Enter), [3]*os.File{r})
			r.Close()
			if err != nil {
				w.Close()
				t.Fatal(err)
			}
			p.expectNoFiles(t) // while it runs
			if q.Recorder != pod.RecordedByCall {
				t.Fatalf("recorded by %v", q.Recorder)
			}
			select {
			case st := <-q.Ended:
				t.Errorf("ended early: %+v", st)
			case <-time.After(time.Second):
			}
			w.Close()
			st := <-q.Ended
			if st.Code != c.want.Code || st.Signal != c.want.Signal || time.Since(st.Time) > time.Minute {
				t.Errorf("exit %+v, want %+v", st, c.want)
			}
		})
	}
}

func TestAnEnterThatReturnsLeavesItsProcess(t *testing.T) {
	p := newFakePod(t, stage1test.Scripts{
		// The process is an orphan before it is reported.
		abi.Enter: `pid=$(sleep 1000 >/dev/null 3>&- 4>&- & echo $!); ready "$pid"`,
	})
	release := children.Expect()
	defer release()
	q, err := p.Enter(t.Context(), p.call(abi.Enter), [3]*os.File{})
	if err != nil {
		t.Fatal(err)
	}
	if q.Recorder != pod.RecordedByStage0 || q.Ended != nil {
		t.Errorf("recorded by %v", q.Recorder)
	}
	endOf(t, q)
}

func TestAnExecThatHasEndedAlreadyIsTheStage1s(t *testing.T) {
	p := newFakePod(t, stage1test.Scripts{abi.Enter: `echo '{"pid": 4194304, "starttime": 7}' >&4`})
	q, err := p.Enter(t.Context(), p.call(abi.Enter), [3]*os.File{})
	if err != nil {
		t.Fatal(err)
	}
	if q.Recorder != pod.RecordedByStage1 || q.PID != 4194304 || q.StartTime != 7 {
		t.Errorf("%+v", q)
	}
}

// console is a script that sends something to the console socket, and is ready.
func consoleScript(t *testing.T, what, then string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return `stat -c '%a %F' "$RKT_CONSOLE_SOCKET" >socket; "` + exe + `" test-console "$RKT_CONSOLE_SOCKET" ` + what + ` >&3 2>&3 ` + then + `
sleep 1000 3>&- 4>&- & ready $!`
}

func TestATerminalsMasterArrives(t *testing.T) {
	for _, length := range []int{0, 150} { // a socket's address has 107 bytes
		p := newFakePod(t, stage1test.Scripts{abi.AppAdd: consoleScript(t, "pty", "")})
		if length > 0 {
			long := filepath.Join(t.TempDir(), strings.Repeat("x", length))
			if err := os.Mkdir(long, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := p.Attach(long); err != nil {
				t.Fatal(err)
			}
			dir := long
			defer func() {
				if err := p.Detach(dir); err != nil {
					t.Error(err)
				}
			}()
			p = &fakePod{Stage1: p.Stage1, dir: long}
		}
		c := p.call(abi.AppAdd)
		c.Request.Terminal = true
		q, err := p.Add(t.Context(), c, [3]*os.File{})
		if err != nil {
			t.Fatal(err)
		}
		endOf(t, q)
		size, err := unix.IoctlGetWinsize(int(q.Console.Fd()), unix.TIOCGWINSZ)
		if err != nil || size.Row != 50 || size.Col != 132 {
			t.Errorf("%+v, %v", size, err)
		}
		if err := q.Console.Close(); err != nil {
			t.Error(err)
		}
		if b, err := os.ReadFile(filepath.Join(p.dir, "socket")); err != nil || string(b) != "600 socket\n" {
			t.Errorf("the socket was %q, %v", b, err)
		}
		p.expectNoFiles(t)
	}
}

func TestWhatIsNoTerminalIsRefused(t *testing.T) {
	for what, want := range map[string]string{
		"file": "not the master of a pty", "two": "2 descriptors", "none": "0 descriptors",
	} {
		p := newFakePod(t, stage1test.Scripts{abi.AppAdd: consoleScript(t, what, "")})
		c := p.call(abi.AppAdd)
		c.Request.Terminal = true
		_, err := p.Add(t.Context(), c, [3]*os.File{})
		if err == nil {
			t.Fatalf("%s: no error", what)
		}
		expectError(t, err, -1, nil, "stage1 fake: app/add: ", want, "console socket")
	}
}

func TestATerminalThatNeverArrivesIsAnError(t *testing.T) {
	for what, script := range map[string]string{
		"it does not connect":   `sleep 1000 3>&- 4>&- & ready $!`,
		"it connects and waits": consoleScript(t, "silence", "&"),
	} {
		p := newFakePod(t, stage1test.Scripts{abi.AppAdd: script})
		c := p.call(abi.AppAdd)
		c.Request.Terminal = true
		_, err := p.Add(t.Context(), c, [3]*os.File{})
		if err == nil {
			t.Fatalf("%s: no error", what)
		}
		expectError(t, err, -1, nil, "without sending a pty master to RKT_CONSOLE_SOCKET")
	}
}
