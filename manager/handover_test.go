package manager

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/config/annotation"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
)

// socketOf returns the socket of a container that is a pod of its own.
func (d *daemon) socketOf(id string) string {
	d.t.Helper()
	path, err := early.SocketPath(d.socketDir, d.address, "ns", id)
	if err != nil {
		d.t.Fatal(err)
	}
	return path
}

// nothingLeft waits until a `start` has left neither socket nor lock nor process.
func (d *daemon) nothingLeft(id string) {
	d.t.Helper()
	socket := d.socketOf(id)
	wait.Observe(d.t, "nothing is left of a start", func() (bool, string) {
		servers := serversOf(d.t, d.address)
		return !exists(socket) && !exists(socket+early.LockSuffix) && len(servers) == 0,
			fmt.Sprintf("socket %v, lock %v, servers %v", exists(socket), exists(socket+early.LockSuffix), servers)
	})
}

// records returns the records of failed starts of a container, and forgets them.
func (d *daemon) records(id string) string {
	d.t.Helper()
	path := filepath.Join(d.state, "ns", id, failedFile)
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
	os.Remove(path)
	return string(text)
}

// starts are the two ways in which the server of a new pod is started: by the front, and by the
// server program, which the front becomes if there is anything unusual.
var starts = map[string]string{"the front": only, "the server program": ""}

// An error of the server is the error of `start`, word by word, and has one record.
func TestAFailureOfTheServerIsToldAndKeptOnce(t *testing.T) {
	const words = "/tmp is shared"
	for name, how := range map[string]string{"the front": "first", "the server program": ""} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t)
			out := d.callOnly(how, d.bundle("ns", "c1", nil), "c1", d.encodedParams("c1"), append(env17("ns"), testDataDir+"="+words), "start")
			if want := "containerd-shim-rkt-v1: " + words + "\n"; out.err == nil || string(out.stderr) != want || len(out.stdout) > 0 {
				t.Errorf("start ended with %v, stdout %q, stderr %q; want %q", out.err, out.stdout, out.stderr, want)
			}
			if got, want := d.records("c1"), "containerd.sock ns c1: "+words+"\n"; got != want {
				t.Errorf("the records are %q, want %q", got, want)
			}
			d.nothingLeft("c1")
		})
	}
}

// fifo makes a fifo. A server that reads from it waits until it is opened for writing.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// begin begins a `start` and returns its process, and a channel for its end.
func (d *daemon) begin(how, id string, env ...string) (front *os.Process, ended <-chan output) {
	d.t.Helper()
	bundle := d.bundle("ns", id, nil)
	pid := make(chan *os.Process, 1)
	done := make(chan output, 1)
	stdin := d.encodedParams(id)
	go func() {
		done <- d.callStarted(func(p *os.Process) { pid <- p }, bundle, "ns", id, stdin, append([]string{asEarly + "=" + how}, append(env17("ns"), env...)...), "start")
	}()
	return <-pid, done
}

// child waits for the server that a `start` has started after the one with the pid before, which it
// may not have reaped yet, and returns its pid.
func child(t *testing.T, front, before int) (pid int) {
	t.Helper()
	wait.Until(t, "start has started a server", func() bool {
		pid = childOf(front)
		return pid > 0 && pid != before
	})
	return pid
}

// childOf returns a child of a process, or 0. A child that has not executed its program yet
// counts as well.
func childOf(parent int) int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		if words := strings.Fields(string(text)); len(words) > 0 {
			pid, _ := strconv.Atoi(words[0])
			return pid
		}
	}
	return 0
}

// A server that is killed before it is ready may have been killed by chance, so the front leaves the
// call to the server program. If its server is killed as well, that is an error.
func TestAServerThatIsKilledBeforeItIsReadyLeavesNothing(t *testing.T) {
	d := newDaemon(t)
	front, done := d.begin("first", "c1", testFifo+"="+fifo(t))
	server := 0
	for range 2 {
		server = child(t, front.Pid, server)
		if err := unix.Kill(server, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		ended(t, server)
	}
	out := <-done
	if want := "start server: it ended before it was ready: killed"; out.err == nil || !strings.Contains(string(out.stderr), want) {
		t.Errorf("start ended with %v, stderr %q, want %q", out.err, out.stderr, want)
	}
	if got := d.records("c1"); strings.Count(got, "\n") != 1 || !strings.Contains(got, "killed") {
		t.Errorf("the records are %q", got)
	}
	d.nothingLeft("c1")
}

// The server is killed after a random time. If it had reported before that, `start` has succeeded,
// and `delete` removes the socket.
func TestNothingIsLeftOfAServerThatIsKilledAtAnyTime(t *testing.T) {
	const times = 40
	d := newDaemon(t)
	failed := 0
	for i := range times {
		id := fmt.Sprint("c", i)
		front, done := d.begin(only, id)
		for pid, ends := 0, time.Now().Add(wait.Patience); pid == 0 && time.Now().Before(ends) && len(done) == 0; {
			if pid = childOf(front.Pid); pid > 0 {
				for range rand.N(20) {
					time.Sleep(rand.N(time.Millisecond))
				}
				if unix.Kill(pid, unix.SIGKILL) == nil {
					ended(t, pid) // until then it may still listen, and has no arguments by which it is found
				}
			}
		}
		out := <-done
		var exit *exec.ExitError
		switch {
		case out.err == nil:
			for _, pid := range serversOf(t, d.address) {
				server, _ := strconv.Atoi(pid)
				_ = unix.Kill(server, unix.SIGKILL)
				ended(t, server)
			}
			bundle := filepath.Join(d.state, "ns", id)
			if !d.callOnly(only, bundle, id, nil, env17("ns"), "delete").answered(t) {
				t.Error("delete is not answered early")
			}
		case errors.As(out.err, &exit) && exit.ExitCode() == notAnswered && len(out.stdout)+len(out.stderr) == 0:
			failed++
		default:
			t.Errorf("start ended with %v, stdout %q, stderr %q", out.err, out.stdout, out.stderr)
		}
		d.nothingLeft(id)
	}
	t.Logf("%d of %d servers were killed before they were ready", failed, times)
	if failed == 0 {
		t.Error("no server was killed before it was ready: the test is broken")
	}
}

func TestAServerThatHangsDoesNotHangStart(t *testing.T) {
	d := newDaemon(t)
	const limit = "500ms"
	_, done := d.begin("first", "c1", testFifo+"="+fifo(t), testLimit+"="+limit)
	out := <-done
	if want := "did not report within " + limit; out.err == nil || !strings.Contains(string(out.stderr), want) || len(out.stdout) > 0 {
		t.Errorf("start ended with %v, stdout %q, stderr %q, want %q", out.err, out.stdout, out.stderr, want)
	}
	d.nothingLeft("c1")
}

// containerd kills a `start` whose client has given up, and calls no `delete`.
func TestAServerWhoseStartIsKilledLeavesNothing(t *testing.T) {
	for name, how := range starts {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t)
			gate := fifo(t)
			front, done := d.begin(how, "c1", testFifo+"="+gate)
			server := child(t, front.Pid, 0)
			if err := front.Kill(); err != nil {
				t.Fatal(err)
			}
			<-done
			if !exists(d.socketOf("c1")) {
				t.Error("the socket is gone before the server could remove it")
			}
			if err := os.WriteFile(gate, nil, 0); err != nil {
				t.Fatal(err)
			}
			ended(t, server)
			d.nothingLeft("c1")
		})
	}
}

// A server of this release understands the handovers of all releases with the same number in
// early.ServerProgram: fields may be missing and unknown.
func TestTheHandoversOfOtherReleasesAreUnderstood(t *testing.T) {
	for release, text := range map[string]string{
		"the first": `{"namespace":"ns","id":"c1","group":"c1","bundle":"BUNDLE","socket":"SOCKET","address":"ADDRESS",
			"ttrpcAddress":"ADDRESS.ttrpc","containerdVersion":"2.4.2","logLevel":"info","annotations":{"x":"y"}}`,
		"an older one": `{"namespace":"ns","id":"c1","group":"c1","socket":"SOCKET","address":"ADDRESS"}`,
		"a newer one": `{"namespace":"ns","id":"c1","group":"c1","bundle":"BUNDLE","socket":"SOCKET","address":"ADDRESS",
			"ttrpcAddress":"ADDRESS.ttrpc","logLevel":"info","new":{"a":[1]},"newer":7}`,
	} {
		t.Run(release, func(t *testing.T) {
			d := newDaemon(t)
			d.bundle("ns", "c1", nil)
			socket := d.socketOf("c1")
			text := strings.NewReplacer("BUNDLE", filepath.Join(d.state, "ns", "c1"), "SOCKET", socket, "ADDRESS", d.address).Replace(text)
			if report := d.serverWith(socket, text); report != "ready\n" {
				t.Fatalf("the server reports %q", report)
			}
			address := early.AddressPrefix + socket
			d.killLater(address)
			if got := connect(t, address).connect().Version; !strings.HasPrefix(got, "ns|c1|c1|native|") {
				t.Errorf("the server was told %q", got)
			}
		})
	}
}

// serverWith starts a server with a handover, as a `start` does, and returns its report.
func (d *daemon) serverWith(socket, handover string) string {
	d.t.Helper()
	if err := os.MkdirAll(d.socketDir, 0o700); err != nil {
		d.t.Fatal(err)
	}
	listener, err := early.Listen(socket)
	if err != nil {
		d.t.Fatal(err)
	}
	defer listener.Close()
	path := filepath.Join(d.t.TempDir(), "handover")
	write(d.t, path, []byte(handover))
	file, err := os.Open(path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer file.Close()
	r, w, err := os.Pipe()
	if err != nil {
		d.t.Fatal(err)
	}
	defer r.Close()
	self, err := os.Executable()
	if err != nil {
		d.t.Fatal(err)
	}
	server := exec.Command(self)
	server.Args = []string{d.argv0, "-namespace", "ns", "-id", "c1", "-address", d.address}
	server.Env = append(os.Environ(), asShim+"=1")
	server.ExtraFiles = []*os.File{listener, file, w}
	if err := server.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	w.Close()
	report := make([]byte, 4096)
	if err := r.SetReadDeadline(time.Now().Add(wait.Patience)); err != nil {
		d.t.Fatal(err)
	}
	n, _ := r.Read(report)
	return string(report[:n])
}

// Servers of all releases with the same number in early.ServerProgram expect this handover, and report
// in this way. A change of this test needs another number.
func TestTheHandoverOfThisReleaseIsUnderstoodByOthers(t *testing.T) {
	d := newDaemon(t)
	dir := t.TempDir()
	server, handed := filepath.Join(dir, "server"), filepath.Join(dir, "handed")
	write(t, server, fmt.Appendf(nil, "#!/bin/sh\ncat <&4 >%s.part\nmv %s.part %s\n[ \"$PWD\" = / ] && printf 'ready\\n' >&5\n", handed, handed, handed))
	if err := os.Chmod(server, 0o700); err != nil {
		t.Fatal(err)
	}
	group := map[string]string{annotation.Group: "pod1", "x": "y"}
	bundle := d.bundle("ns", "c1", group)
	if !d.callOnly(only, bundle, "c1", d.encodedParams("c1"), append(env17("ns"), testServer+"="+server), "start").answered(t) {
		t.Fatal("not answered early")
	}
	text, err := os.ReadFile(handed)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	expected := fmt.Sprintf(`{"namespace":"ns","id":"c1","group":"pod1","bundle":%q,"socket":%q,"address":%q,"ttrpcAddress":%q,
		"containerdVersion":"2.4.2","logLevel":"info","annotations":{%q:"pod1","x":"y"}}`,
		bundle, d.socketOf("pod1"), d.address, d.address+".ttrpc", annotation.Group)
	if err := errors.Join(json.Unmarshal(text, &got), json.Unmarshal([]byte(expected), &want)); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the server was handed %s, want %s", text, expected)
	}
}
