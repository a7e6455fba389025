package manager

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
)

// withLog gives the bundle a log fifo, as containerd does.
func (d *daemon) withLog(namespace, id string) (fifo string) {
	d.t.Helper()
	fifo = filepath.Join(d.bundle(namespace, id, nil), "log")
	if err := unix.Mkfifo(fifo, 0o700); err != nil {
		d.t.Fatal(err)
	}
	return fifo
}

// readLog copies the log as containerd does.
func readLog(t *testing.T, fifo string) func() string {
	t.Helper()
	fd, err := unix.Open(fifo, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), fifo)
	var (
		mu   sync.Mutex
		text bytes.Buffer
		wg   sync.WaitGroup
	)
	wg.Go(func() {
		b := make([]byte, 64<<10)
		for {
			n, err := f.Read(b)
			mu.Lock()
			text.Write(b[:n])
			mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() { f.Close(); wg.Wait() })
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}
}

// requirements.md#N5
func TestShutdownRemovesTheSocketBeforeItIsAnswered(t *testing.T) {
	d := newDaemon(t)
	text := readLog(t, d.withLog("ns", "c1"))
	address := d.start24("ns", "c1", nil)
	c := connect(t, address)
	pid := c.shimPID()
	c.create("c1")
	shutdown := func() {
		t.Helper()
		if _, err := c.task.Shutdown(t.Context(), &task.ShutdownRequest{ID: "c1"}); err != nil {
			t.Fatal(err)
		}
	}
	shutdown()
	if !exists(early.PathOf(address)) {
		t.Fatal("the socket is gone although there is a container")
	}
	if _, err := c.task.Delete(t.Context(), &task.DeleteRequest{ID: "c1"}); err != nil {
		t.Fatal(err)
	}
	shutdown()
	if exists(early.PathOf(address)) {
		t.Error("the socket is still there after the answer to Shutdown")
	}
	// A `start` that comes now must not find the server that is ending.
	if again := connect(t, d.start24("ns", "c1", nil)).shimPID(); again == pid {
		t.Error("the next start found the server that ends")
	}
	ended(t, pid)
	if strings.Contains(text(), "service closed") {
		t.Error("a service that ended by itself was closed as well")
	}
	if !exists(early.PathOf(address)) {
		t.Error("the server that ended took the socket of the next one along")
	}
}

// requirements.md#N5
func TestWhoAsksForAServerThatEndsFindsTheConnectionClosed(t *testing.T) {
	d := newDaemon(t)
	d.withLog("ns", "c1")
	address := d.start24("ns", "c1", nil)
	c, other := connect(t, address), connect(t, address)
	pid := other.shimPID()
	c.create("c1")
	if _, err := c.task.Delete(t.Context(), &task.DeleteRequest{ID: "c1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.task.Shutdown(t.Context(), &task.ShutdownRequest{ID: "c1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.task.State(t.Context(), &task.StateRequest{ID: "c1"}); errors.Is(err, ttrpc.ErrClosed) {
		t.Errorf("State after Shutdown: %v", err)
	}
	// nerdctl forwards a signal to a container that has just ended.
	if _, err := other.task.Kill(t.Context(), &task.KillRequest{ID: "c1", Signal: 15}); err == nil || errors.Is(err, ttrpc.ErrClosed) {
		t.Errorf("Kill after Shutdown: %v", err)
	}
	if _, err := other.task.Connect(t.Context(), &task.ConnectRequest{}); !errors.Is(err, ttrpc.ErrClosed) {
		t.Errorf("Connect after Shutdown: %v", err)
	}
	ended(t, pid)
}

// answers is a client's connection that records the answers in their order.
type answers struct {
	net.Conn
	mu   sync.Mutex
	read bytes.Buffer
}

func (a *answers) Read(b []byte) (int, error) {
	n, err := a.Conn.Read(b)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read.Write(b[:n])
	return n, err
}

// streams returns the numbers of the calls that were answered. The first call has 1,
// the next one 3.
func (a *answers) streams() (ids []uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for b := a.read.Bytes(); len(b) >= 10; b = b[10+binary.BigEndian.Uint32(b):] {
		ids = append(ids, binary.BigEndian.Uint32(b[4:]))
	}
	return ids
}

// containerd closes the connection when it has the answer to Shutdown.
// requirements.md#N5
func TestCallsInProgressAreAnsweredBeforeShutdown(t *testing.T) {
	d := newDaemon(t)
	text := readLog(t, d.withLog("ns", "slow"))
	address := d.start24("ns", "slow", nil)
	conn, err := net.Dial("unix", early.PathOf(address))
	if err != nil {
		t.Fatal(err)
	}
	wire := &answers{Conn: conn}
	client := ttrpc.NewClient(wire)
	defer client.Close()
	server := task.NewTTRPCTaskClient(client)
	connected, err := server.Connect(t.Context(), &task.ConnectRequest{})
	if err == nil {
		_, err = server.Create(t.Context(), &task.CreateTaskRequest{ID: "slow"})
	}
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := server.Delete(t.Context(), &task.DeleteRequest{ID: "slow"}); err != nil {
			t.Errorf("Delete: %v", err)
		}
	})
	wait.Until(t, "Delete is at work", func() bool { return strings.Contains(text(), "deletes slowly") })
	// Two clients that have deleted the same container both send it.
	began := time.Now()
	for range 2 {
		all.Go(func() {
			if _, err := server.Shutdown(t.Context(), &task.ShutdownRequest{ID: "slow"}); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
		})
	}
	all.Wait()
	if took := time.Since(began); took > answerLimit*wait.Busyness() {
		t.Errorf("Shutdown took %v: two of them wait for each other", took)
	}
	if ids := wire.streams(); len(ids) != 5 || ids[2] != 5 {
		t.Errorf("answers came in the order %v: Shutdown before Delete, which is 5", ids)
	}
	client.Close()
	ended(t, int(connected.ShimPid))
}

// What a call in progress publishes is delivered only before the service is closed.
//
// requirements.md#N2
func TestACallInProgressEndsBeforeASignalClosesTheService(t *testing.T) {
	d := newDaemon(t)
	text := readLog(t, d.withLog("ns", "brief"))
	c := connect(t, d.start24("ns", "brief", nil))
	c.create("brief")
	pid := c.shimPID()
	deleted := make(chan error, 1)
	go func() {
		_, err := c.task.Delete(t.Context(), &task.DeleteRequest{ID: "brief"})
		deleted <- err
	}()
	wait.Until(t, "Delete is at work", func() bool { return strings.Contains(text(), "deletes briefly") })
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-deleted; err != nil {
		t.Errorf("Delete: %v", err)
	}
	ended(t, pid)
	wait.Until(t, "the service was closed in order", func() bool { return strings.Contains(text(), "service closed") })
	if all := text(); strings.Index(all, "has deleted") > strings.Index(all, "service closed") {
		t.Error("the service was closed while a Delete was at work")
	}
}

// requirements.md#N2
func TestSignalsEndTheServerInOrderAlsoWhileCallsWait(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			d := newDaemon(t)
			text := readLog(t, d.withLog("ns", "c1"))
			address := d.start24("ns", "c1", nil)
			c := connect(t, address)
			c.create("c1")
			pid := c.shimPID()
			waited := make(chan error, 1)
			go func() {
				_, err := c.task.Wait(t.Context(), &task.WaitRequest{ID: "c1"})
				waited <- err
			}()
			c.shimPID() // a round trip after the Wait
			start := time.Now()
			if err := unix.Kill(pid, sig); err != nil {
				t.Fatal(err)
			}
			ended(t, pid)
			if took := time.Since(start); took > closeBudget*wait.Busyness() {
				t.Errorf("the end took %v", took)
			}
			if exists(early.PathOf(address)) {
				t.Error("the socket is still there")
			}
			if err := <-waited; err == nil {
				t.Error("Wait was answered although nothing ended")
			}
			wait.Until(t, "the service was closed in order", func() bool { return strings.Contains(text(), "service closed") })
		})
	}
}

// requirements.md#N2
func TestSIGUSR1LogsAllStacksAndSIGPIPENothing(t *testing.T) {
	d := newDaemon(t)
	text := readLog(t, d.withLog("ns", "c1"))
	c := connect(t, d.start24("ns", "c1", nil))
	pid := c.shimPID()
	for _, sig := range []unix.Signal{unix.SIGPIPE, unix.SIGUSR1} {
		if err := unix.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	wait.Until(t, "the stacks are in the log", func() bool {
		return strings.Contains(text(), "END goroutine stack dump") && strings.Contains(text(), "manager.(*server).wait")
	})
	if !strings.Contains(text(), "namespace=ns") || !strings.Contains(text(), "level=info") {
		t.Errorf("the log is not logrus text: %.200s", text())
	}
	if c.shimPID() != pid {
		t.Error("the server is another one")
	}
}

// requirements.md#N3
func TestLogThatNobodyReadsStopsNothing(t *testing.T) {
	d := newDaemon(t)
	fifo := d.withLog("ns", "c1")
	c := connect(t, d.start24("ns", "c1", nil))
	for range 3 {
		c.create("chatty") // two megabytes of log each
	}
	// A restarted daemon reads the lines that fitted, and the number of the others.
	text := readLog(t, fifo)
	wait.Until(t, "the log is read", func() bool { return strings.Contains(text(), "xxxx") })
	c.create("chatty")
	wait.Until(t, "the loss is reported", func() bool { return strings.Contains(text(), "lines of the log were dropped") })
}

// requirements.md#N3
func TestLogWithTheBundleGoneStopsNothing(t *testing.T) {
	d := newDaemon(t)
	d.withLog("ns", "c1")
	c := connect(t, d.start24("ns", "c1", nil))
	if err := os.RemoveAll(filepath.Join(d.state, "ns", "c1")); err != nil {
		t.Fatal(err)
	}
	c.create("chatty")
}

// requirements.md#B15
func TestServerSharesNothingWithContainerd(t *testing.T) {
	d := newDaemon(t)
	fifo := d.withLog("ns", "c1")
	pid := connect(t, d.start24("ns", "c1", nil)).shimPID()
	proc := fmt.Sprintf("/proc/%d", pid)
	for name, want := range map[string]string{"cwd": "/", "fd/0": "/dev/null", "fd/1": fifo, "fd/2": fifo} {
		if got, err := os.Readlink(filepath.Join(proc, name)); err != nil || got != want {
			t.Errorf("%s is %s, %v; want %s", name, got, err, want)
		}
	}
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("session %d, %v; want its own, %d", sid, err, pid)
	}
	fds, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, _ := os.Readlink(filepath.Join(proc, "fd", fd.Name()))
		if n, _ := strconv.Atoi(fd.Name()); n > 2 && !strings.HasPrefix(to, "/sys/fs/cgroup/") && !strings.HasPrefix(to, "socket:") && !strings.HasPrefix(to, "anon_inode:[event") {
			t.Errorf("descriptor %s is %s", fd.Name(), to)
		}
	}
}

// requirements.md#B16
func TestServerHasAHigherOOMScoreThanItsMaker(t *testing.T) {
	d := newDaemon(t)
	score := func(pid string) int {
		t.Helper()
		text, err := os.ReadFile("/proc/" + pid + "/oom_score_adj")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	pid := connect(t, d.start24("ns", "c1", nil)).shimPID()
	if got, want := score(strconv.Itoa(pid)), min(score("self")+1, 1000); got != want {
		t.Errorf("oom_score_adj is %d, want %d", got, want)
	}
}

func TestServeByHandListensOnTheGivenSocket(t *testing.T) {
	d := newDaemon(t)
	path := filepath.Join(filepath.Dir(d.socketDir), "by-hand")
	done := make(chan output, 1)
	bundle := d.bundle("ns", "c1", nil)
	go func() { done <- d.call(bundle, "ns", "c1", nil, nil, "-socket", path) }()
	wait.Until(t, "the server listens", func() bool { return early.Probe(path) == nil })
	c := connect(t, early.AddressPrefix+path)
	if got := c.connect().Version; !strings.HasPrefix(got, "ns|c1|c1|native|info|") {
		t.Errorf("the server knows %q", got)
	}
	if _, err := c.task.Shutdown(t.Context(), &task.ShutdownRequest{}); err != nil {
		t.Fatal(err)
	}
	if out := <-done; out.err != nil || exists(path) {
		t.Errorf("the server ended with %v, stderr %q, and left its socket: %v", out.err, out.stderr, exists(path))
	}
}

func TestServeWithoutASocketSaysHow(t *testing.T) {
	d := newDaemon(t)
	out := d.call(d.bundle("ns", "c1", nil), "ns", "c1", nil, nil)
	if out.err == nil || !strings.Contains(string(out.stderr), "-socket") {
		t.Errorf("it ended with %v, stderr %q", out.err, out.stderr)
	}
}
