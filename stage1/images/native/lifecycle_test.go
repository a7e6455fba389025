package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

func TestAnAppLivesFromAddToRm(t *testing.T) {
	p := startPod(t)
	out, stdout := pipe(t)
	pid := p.add(p.request("web", "sh", "-c", "echo hello; exit 42"), nil, stdout, nil)
	stdout.Close()
	if _, err := os.Stat(filepath.Join(p.dir, abi.StatusDir, "web")); !os.IsNotExist(err) {
		t.Errorf("an exit is recorded before the start: %v", err)
	}
	if ppid := status(t, pid, "PPid"); ppid != fmt.Sprint(p.ready.PID) {
		t.Errorf("the app's parent is %s, want the supervisor, %d", ppid, p.ready.PID)
	}
	p.expect(abi.ExitFailedPrecondition, abi.AppRm, "web")
	p.expect(0, abi.AppStart, "web")
	p.exited("web", "", 42, 0)
	if b, err := io.ReadAll(out); err != nil || string(b) != "hello\n" {
		t.Errorf("the app wrote %q (%v)", b, err)
	}
	a := p.expect(abi.ExitFailedPrecondition, abi.AppStart, "web")
	if !strings.Contains(a.text, "cannot start a stopped process") {
		t.Errorf("text %q", a.text)
	}
	p.signal(abi.ExitNotFound, "web", "", syscall.SIGTERM)
	p.signal(abi.ExitNotImplemented, "web", "", 0)
	p.expect(0, abi.AppStop, "web")
	p.expect(0, abi.AppRm, "web")
	p.expect(0, abi.AppRm, "web")
	p.expect(abi.ExitNotFound, abi.AppStop, "web")
	p.expect(0, abi.Stop, "")
	p.over()
	if code := p.run.ProcessState.ExitCode(); code != 0 {
		t.Errorf("run ended with %d", code)
	}
	p.expect(0, abi.GC, "")
}

func TestABlockedAppHoldsItsStdioAndItsSocketOnly(t *testing.T) {
	p := startPod(t)
	other, stdin := pipe(t)
	p.add(p.request("first", "cat"), other)
	defer stdin.Close()
	pid := p.add(p.request("second", "cat"))
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	must(t, err)
	var sockets int
	for _, fd := range fds {
		target, err := os.Readlink(filepath.Join(dir, fd.Name()))
		must(t, err)
		switch {
		case strings.HasPrefix(target, "socket:"):
			sockets++
		case strings.HasPrefix(target, "pipe:"), target == p.dir, strings.Contains(target, "native."):
			t.Errorf("descriptor %s is %s", fd.Name(), target)
		}
	}
	if sockets != 1 {
		t.Errorf("it holds %d sockets, want its own one", sockets)
	}
	p.expect(0, abi.Stop, "")
	p.over()
}

func TestPipesBelongToTheGroupThatTheOptionsName(t *testing.T) {
	p := startPod(t)
	group := func(f *os.File) uint32 {
		var st unix.Stat_t
		must(t, unix.Fstat(int(f.Fd()), &st))
		return st.Gid
	}
	_, w := pipe(t)
	r := p.request("a", "sleep", "100")
	r.Options = &abi.Options{IoGID: 4711}
	p.add(r, nil, w)
	if g := group(w); g != 4711 {
		t.Errorf("the app's pipe is of group %d", g)
	}
	p.expect(0, abi.AppStart, "a")
	_, w = pipe(t)
	process, err := json.Marshal(specs.Process{Args: []string{"true"}, Cwd: "/", Env: []string{"PATH=/bin"}})
	must(t, err)
	a := p.call(abi.Enter, entrypoint{
		request: abi.Request{App: "a", Exec: "e", Process: process, Options: &abi.Options{IoGID: 4712}},
		stdio:   [3]*os.File{1: w},
	})
	if a.code != 0 || group(w) != 4712 {
		t.Errorf("exec: exit code %d, %s; its pipe is of group %d", a.code, a.text, group(w))
	}
}

func TestRunningAppsHoldTheirStdioOnly(t *testing.T) {
	p := startPod(t)
	out, stdout := pipe(t)
	in, stdin := pipe(t)
	p.add(p.request("web", "sh", "-c", "ls /proc/self/fd; cat /proc/self/status | grep -E '^Sig(Blk|Ign)'; cat"), in, stdout, stdout)
	stdout.Close()
	in.Close()
	p.expect(0, abi.AppStart, "web")
	stdin.Close() // the last copy: cat ends only if nobody keeps another
	p.exited("web", "", 0, 0)
	b, err := io.ReadAll(out)
	must(t, err)
	got := strings.Fields(string(b))
	// Descriptor 3 is the directory that ls reads.
	want := []string{"0", "1", "2", "3", "SigBlk:", "0000000000000000", "SigIgn:", "0000000000000000"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestASignalToAnAddedAppKillsIt(t *testing.T) {
	p := startPod(t)
	p.add(p.request("web", "sleep", "1000"))
	p.signal(0, "web", "", syscall.SIGWINCH) // kills nobody
	p.signal(0, "web", "", syscall.SIGTERM)
	p.exited("web", "", 137, 9)
	a := p.signal(abi.ExitNotFound, "web", "", syscall.SIGKILL)
	if !strings.Contains(a.text, "process already finished") {
		t.Errorf("text %q", a.text)
	}
	p.expect(abi.ExitFailedPrecondition, abi.AppStart, "web")
	p.expect(0, abi.AppRm, "web")
}

func (p *pod) signal(code int, app, exec string, sig syscall.Signal) answer {
	p.t.Helper()
	a := p.call(abi.AppSignal, entrypoint{request: abi.Request{App: app, Exec: exec, Signal: int(sig)}})
	if a.code != code {
		p.t.Errorf("%s to %s %s: exit code %d (%s), want %d", sig, app, exec, a.code, a.text, code)
	}
	return a
}

func TestASignalReachesARunningApp(t *testing.T) {
	p := startPod(t)
	out, stdout := pipe(t)
	p.add(p.request("web", "sh", "-c", `trap 'echo usr1; exit 3' USR1; echo set; while :; do sleep 1; done`), nil, stdout)
	stdout.Close()
	p.expect(0, abi.AppStart, "web")
	a := p.expect(abi.ExitFailedPrecondition, abi.AppStart, "web")
	if !strings.Contains(a.text, "cannot start a running process") {
		t.Errorf("text %q", a.text)
	}
	line := make([]byte, 4)
	if _, err := io.ReadFull(out, line); err != nil {
		t.Fatal(err)
	}
	p.signal(0, "web", "", syscall.SIGUSR1)
	p.exited("web", "", 3, 0)
}

func TestExecsRunInAddedAndRunningApps(t *testing.T) {
	p := startPod(t)
	app := p.add(p.request("web", "sleep", "1000"))
	for i, started := range []bool{false, true} {
		if started {
			p.expect(0, abi.AppStart, "web")
		}
		id := fmt.Sprintf("exec_%d", i)
		out, stdout := pipe(t)
		in, stdin := pipe(t)
		a := p.enter("web", id, [3]*os.File{in, stdout}, "sh", "-c", "read x; cat /proc/self/status; exit 7")
		if a.code != 0 {
			t.Fatalf("enter: exit code %d: %s", a.code, a.text)
		}
		stdout.Close()
		for _, ns := range []string{"pid", "mnt", "ipc", "uts"} {
			if x, y := namespace(t, app, ns), namespace(t, a.ready.PID, ns); x != y {
				t.Errorf("%s: in %s, the app in %s", ns, y, x)
			}
		}
		if ppid := status(t, a.ready.PID, "PPid"); ppid != fmt.Sprint(p.ready.PID) {
			t.Errorf("the exec's parent is %s, want the supervisor", ppid)
		}
		again := p.enter("web", id, [3]*os.File{}, "true")
		if again.code != abi.ExitFailedPrecondition {
			t.Errorf("a second exec %s: exit code %d (%s)", id, again.code, again.text)
		}
		stdin.Close()
		p.exited("web", id, 7, 0)
		if b, _ := io.ReadAll(out); !strings.Contains(string(b), "Name:\tcat") {
			t.Errorf("the exec wrote %q", b)
		}
		p.signal(abi.ExitNotFound, "web", id, syscall.SIGTERM)
	}
	p.signal(0, "web", "", syscall.SIGKILL)
	p.exited("web", "", 137, 9)
	if a := p.enter("web", "late", [3]*os.File{}, "true"); a.code != abi.ExitFailedPrecondition {
		t.Errorf("an exec in an ended app: exit code %d (%s)", a.code, a.text)
	}
	if a := p.enter("other", "e", [3]*os.File{}, "true"); a.code != abi.ExitNotFound {
		t.Errorf("an exec in no app: exit code %d (%s)", a.code, a.text)
	}
}

func TestASignalReachesAnExec(t *testing.T) {
	p := startPod(t)
	p.add(p.request("web", "sleep", "1000"))
	p.expect(0, abi.AppStart, "web")
	if a := p.enter("web", "e", [3]*os.File{}, "sleep", "1000"); a.code != 0 {
		t.Fatalf("enter: exit code %d: %s", a.code, a.text)
	}
	p.signal(0, "web", "e", syscall.SIGTERM)
	p.exited("web", "e", 143, 15)
}

func TestAppsAndExecsAreMadeAtTheSameTime(t *testing.T) {
	p := startPod(t)
	const n = 6
	var group sync.WaitGroup
	for i := range n {
		app := fmt.Sprintf("app%d", i)
		r := p.request(app, "sh", "-c", fmt.Sprintf("exit %d", i))
		group.Go(func() {
			if a := p.call(abi.AppAdd, entrypoint{request: r}); a.code != 0 {
				t.Errorf("add %s: %d %s", app, a.code, a.text)
				return
			}
			if a := p.enter(app, "e", [3]*os.File{}, "true"); a.code != 0 {
				t.Errorf("enter %s: %d %s", app, a.code, a.text)
			}
			if a := p.do(abi.AppStart, app); a.code != 0 {
				t.Errorf("start %s: %d %s", app, a.code, a.text)
			}
		})
	}
	group.Wait()
	seen := map[string]bool{}
	for range 2 * n {
		seen[p.notice()] = true
	}
	for i := range n {
		app := fmt.Sprintf("app%d", i)
		if !seen["exit "+app] || !seen["exit "+app+" e"] {
			t.Errorf("no notices of %s in %v", app, seen)
		}
		if s, err := abi.ReadStatus(filepath.Join(p.dir, abi.StatusDir), app, ""); err != nil || s.Code != i {
			t.Errorf("%s: %+v, %v", app, s, err)
		}
	}
	p.expect(0, abi.Stop, "")
	p.over()
}

func status(t *testing.T, pid int, field string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for line := range strings.SplitSeq(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	t.Fatalf("no %s in the status of %d", field, pid)
	return ""
}

func namespace(t *testing.T, pid int, kind string) string {
	t.Helper()
	n, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	must(t, err)
	return n
}
