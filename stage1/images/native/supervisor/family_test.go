package supervisor

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

const busybox = "/bin/busybox"

// diary is a chronicle for tests.
type diary struct {
	onRecord func() // set before a verdict
	mu       sync.Mutex
	entries  []string
}

func (d *diary) record(n name, s abi.Status) {
	if d.onRecord != nil {
		d.onRecord()
	}
	d.write(fmt.Sprintf("record %s %d %d", n.app, s.Code, s.Signal))
}

func (d *diary) announce(n name, _ abi.Status) { d.write("announce " + n.app) }

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

// household is a family with a reaper, in a process that inherits orphans.
func household(t *testing.T) (*family, *diary) {
	t.Helper()
	if _, err := os.Stat(busybox); err != nil {
		t.Skip("needs a static busybox at " + busybox)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	d := &diary{}
	f := newFamily(d)
	sigchld := make(chan os.Signal, 1)
	signal.Notify(sigchld, unix.SIGCHLD)
	ctx, cancel := context.WithCancel(context.Background())
	var reaper sync.WaitGroup
	reaper.Go(func() { f.reapAll(ctx, sigchld) })
	t.Cleanup(func() {
		for _, c := range f.all() {
			f.drop(c)
		}
		cancel()
		reaper.Wait()
		signal.Stop(sigchld)
	})
	return f, d
}

// shell starts a shell in a family.
func shell(t *testing.T, f *family, app, script string) *child {
	t.Helper()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	c, err := f.start(context.Background(), name{app: app}, &fork.Process{
		Path: busybox, Args: []string{"sh", "-c", script}, Env: []string{"PATH=/bin"},
		Files: []*os.File{null, null, null},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: it did not come to pass", what)
		}
	}
}

func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(b), ") Z ")
}

func TestAnExitIsKeptUntilItsVerdict(t *testing.T) {
	f, d := household(t)
	c := shell(t, f, "web", "exit 7")
	eventually(t, "the end of the process", func() bool { return zombie(c.pid) })
	if !gone(c.signal(unix.SIGTERM)) {
		t.Error("a zombie took a signal")
	}
	if got := d.read(); got != "" {
		t.Errorf("before the verdict: %s", got)
	}
	d.onRecord = func() {
		if !zombie(c.pid) {
			t.Error("the process is reaped before its end is recorded")
		}
	}
	f.keep(c)
	if s := c.end(); s.Code != 7 || s.Signal != 0 {
		t.Errorf("status %+v", s)
	}
	if got := d.read(); got != "record web 7 0; announce web" {
		t.Errorf("the diary says %q", got)
	}
	if !gone(c.signal(unix.SIGTERM)) {
		t.Error("a reaped process took a signal")
	}
}

func TestASignalledExitIsRecordedAsSuch(t *testing.T) {
	f, d := household(t)
	c := shell(t, f, "web", "exec sleep 1000")
	f.keep(c)
	if err := c.signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.end()
	if got := d.read(); got != "record web 143 15; announce web" {
		t.Errorf("the diary says %q", got)
	}
}

// ours lists the children of this process.
func ours(t *testing.T) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, file := range files {
		b, _ := os.ReadFile(file) // a thread may end
		for _, s := range strings.Fields(string(b)) {
			pid, _ := strconv.Atoi(s)
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestADroppedChildIsNobodysBusiness(t *testing.T) {
	f, d := household(t)
	c := shell(t, f, "web", "sleep 1000")
	if s := f.drop(c); s.Signal != 9 {
		t.Errorf("status %+v", s)
	}
	// One that has ended by itself keeps its status.
	c = shell(t, f, "web", "exit 3")
	eventually(t, "the end of the process", func() bool { return zombie(c.pid) })
	if s := f.drop(c); s.Code != 3 {
		t.Errorf("status %+v", s)
	}
	if got := d.read(); got != "" {
		t.Errorf("the diary says %q", got)
	}
}

func TestOrphansBehindAnUndecidedZombieAreReapedAfterItsVerdict(t *testing.T) {
	f, _ := household(t)
	undecided := shell(t, f, "web", "true")
	eventually(t, "the end of the process", func() bool { return zombie(undecided.pid) })
	parent := shell(t, f, "parent", "(sleep 0 & sleep 0 &)")
	f.keep(parent)
	parent.end()
	f.keep(undecided)
	undecided.end()
	eventually(t, "the end of the orphans", func() bool { return len(ours(t)) == 0 })
}

func TestNoExitIsLostAmongManyBirths(t *testing.T) {
	f, d := household(t)
	const n = 40
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			c := shell(t, f, strconv.Itoa(i), "(true &); exit "+strconv.Itoa(i))
			if i%2 == 0 {
				eventually(t, "an end", func() bool { return zombie(c.pid) })
			}
			f.keep(c)
			if s := c.end(); s.Code != i {
				t.Errorf("%d ended with %+v", i, s)
			}
		})
	}
	group.Wait()
	for i := range n {
		if !strings.Contains(d.read(), fmt.Sprintf("record %d %d 0", i, i)) {
			t.Errorf("no record of %d", i)
		}
	}
	eventually(t, "the end of all orphans", func() bool { return len(ours(t)) == 0 })
}

func TestAHookThatLeavesADaemonBehindHasAnEnd(t *testing.T) {
	f, _ := household(t)
	marker := filepath.Join(t.TempDir(), "pid")
	err := f.runHook(context.Background(), hook("echo said >&2; sleep 1000 & echo $! >"+marker+"; exit 4"), "/", nil)
	if err == nil || err.Error() != "exit status 4: said" {
		t.Errorf("error %v", err)
	}
	for _, pid := range ours(t) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	eventually(t, "the end of the daemon", func() bool { return len(ours(t)) == 0 })
}

func TestTheEndOfAHooksOutputIsKept(t *testing.T) {
	f, _ := household(t)
	err := f.runHook(context.Background(), hook("i=0; while [ $i -lt 9000 ]; do echo line $i; i=$((i+1)); done; exit 1"), "/", nil)
	if err == nil || !strings.HasSuffix(err.Error(), "line 8998\nline 8999") || len(err.Error()) > maxHookOutput+100 {
		t.Errorf("error %.80q", err)
	}
}
