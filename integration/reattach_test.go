package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// When a service manager stops containerd, no task ends, and the next containerd finds all of
// them within the few seconds that it allows (requirements.md#R1, requirements.md#R7).
func TestTwentyTasksSurviveAStoppedContainerd(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		pids := map[string]uint32{}
		for range c.repetitions(20, 5) {
			task := c.running(t, []string{"testprog", "sleep", "1000"})
			pids[task.ID()] = task.Pid()
		}
		if err := c.daemon.Stop(); err != nil {
			t.Fatal(err)
		}
		c.resume(t)
		for id, pid := range pids {
			task := c.reload(t, id)
			expectStatus(t, ctx, task, containerd.Running)
			if task.Pid() != pid {
				t.Errorf("%s has pid %d, before it was %d", id, task.Pid(), pid)
			}
		}
	})
}

// A paused container, a created one and one with a running exec keep their states.
func TestEveryStateSurvivesARestart(t *testing.T) {
	eachRelease(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		paused := c.running(t, []string{"testprog", "sleep", "1000"})
		if err := paused.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		created := c.task(t, []string{"testprog", "exit", "3"})
		busy := c.running(t, []string{"testprog", "sleep", "1000"})
		exec, err := busy.Exec(ctx, "e", process(t, ctx, busy, "testprog", "sleep", "1000"), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		if err := exec.Start(ctx); err != nil {
			t.Fatal(err)
		}

		c.restart(t, nil)
		paused, created, busy = c.reload(t, paused.ID()), c.reload(t, created.ID()), c.reload(t, busy.ID())
		expectStatus(t, ctx, paused, containerd.Paused)
		if err := paused.Resume(ctx); err != nil {
			t.Error(err)
		}
		expectStatus(t, ctx, paused, containerd.Running)

		expectStatus(t, ctx, created, containerd.Created)
		exited := c.wait(t, created)
		if err := created.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 3)

		if exec, err = busy.LoadProcess(ctx, "e", nil); err != nil {
			t.Fatal(err)
		}
		expectStatus(t, ctx, exec, containerd.Running)
		exited = c.wait(t, exec)
		kill(t, ctx, exec, syscall.SIGKILL)
		expectExit(t, exited, 137)
		deleteTask(t, ctx, exec)
	})
}

// The reader of a container's output may die with containerd, as CRI's does. The output then
// waits in the fifo and in the pipe, and the container blocks. The next reader continues where
// the last one has stopped, and the input does not end (requirements.md#R5, requirements.md#I1,
// requirements.md#I2).
func TestNoOutputIsLostWhenItsReaderDiesWithContainerd(t *testing.T) {
	eachRelease(t, func(t *testing.T, c *column) {
		for _, terminal := range []bool{false, true} {
			t.Run(fmt.Sprintf("terminal=%v", terminal), func(t *testing.T) { c.readInTwoLives(t, terminal) })
		}
	})
}

func (c *column) readInTwoLives(t *testing.T, terminal bool) {
	const lines = 40_000 // a megabyte, more than pipe and fifo can hold when the shim has made them wide
	script := fmt.Sprintf(`stty -echo -onlcr 2>/dev/null; i=0
		while [ $i -lt %d ]; do echo a line of output, $i; i=$((i+1)); done; read word; echo got $word; exit 5`, lines)
	var opts []oci.SpecOpts
	if terminal {
		opts = append(opts, oci.WithTTY)
	}
	streams := newFifos(t, terminal)
	reader := streams.reader(t) // before the task: runc's shim waits for it
	task := c.newTask(t, c.container(t, []string{"sh", "-c", script}, opts...), streams.creator)
	exited := c.wait(t, task)
	if err := task.Start(c.context(t)); err != nil {
		t.Fatal(err)
	}
	seen := readUntil(t, reader, func(all []byte) bool { return len(all) > 10_000 })
	streams.write(t, "wo")

	c.restart(t, func() {
		wait.Observe(t, "the container runs into the full pipe", func() (bool, string) {
			// The number of the system call in which it is blocked, or "running".
			call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", task.Pid()))
			return strings.HasPrefix(string(call), strconv.Itoa(unix.SYS_WRITE)+" "), fmt.Sprint(string(call), err)
		})
	})
	if s := c.reload(t, task.ID()); int(s.Pid()) != int(task.Pid()) || !alive(int(s.Pid())) {
		t.Errorf("process %d, before it was %d", s.Pid(), task.Pid())
	}
	streams.write(t, "rd\n")
	seen = append(seen, readUntil(t, streams.reader(t), func(all []byte) bool { return bytes.HasSuffix(all, []byte("got word\n")) })...)

	var want bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&want, "a line of output, %d\n", i)
	}
	want.WriteString("got word\n")
	if !bytes.Equal(seen, want.Bytes()) {
		t.Errorf("%d bytes of output, want %d: they are not the same after %q", len(seen), want.Len(), tailOfCommon(seen, want.Bytes()))
	}
	// The wait began before the restart, on a connection that is closed.
	<-exited
	task = c.reload(t, task.ID())
	expectExit(t, c.wait(t, task), 5)
	deleteTask(t, c.context(t), task)
}

// tailOfCommon returns the end of the common prefix of two texts.
func tailOfCommon(a, b []byte) []byte {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[max(0, n-40):n]
}

// fifos are the streams of a process whose client is the test itself.
type fifos struct{ config cio.Config }

func newFifos(t *testing.T, terminal bool) fifos {
	t.Helper()
	dir := t.TempDir()
	f := fifos{cio.Config{Terminal: terminal, Stdin: filepath.Join(dir, "in"), Stdout: filepath.Join(dir, "out")}}
	if !terminal {
		f.config.Stderr = os.DevNull // runc's shim needs one
	}
	for _, path := range []string{f.config.Stdin, f.config.Stdout} {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func (f fifos) creator(string) (cio.IO, error) { return streamsOf(f), nil }

// streamsOf implements the interface that containerd's client expects of fifos.
type streamsOf fifos

func (f streamsOf) Config() cio.Config { return f.config }
func (streamsOf) Cancel()              {}
func (streamsOf) Wait()                {}
func (streamsOf) Close() error         { return nil }

// reader opens the output.
func (f fifos) reader(t *testing.T) *os.File {
	t.Helper()
	r, err := os.OpenFile(f.config.Stdout, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// readUntil reads until enough is true, and closes the reader.
func readUntil(t *testing.T, r *os.File, enough func(all []byte) bool) []byte {
	t.Helper()
	defer r.Close()
	if err := r.SetReadDeadline(time.Now().Add(wait.Patience)); err != nil {
		t.Fatal(err)
	}
	var all []byte
	buf := make([]byte, 4096)
	for !enough(all) {
		n, err := r.Read(buf)
		all = append(all, buf[:n]...)
		if err != nil {
			t.Fatalf("read the output: %v after %d bytes, the last being %q", err, len(all), all[max(0, len(all)-40):])
		}
	}
	return all
}

// write opens the input, writes and closes it.
func (f fifos) write(t *testing.T, text string) {
	t.Helper()
	w, err := os.OpenFile(f.config.Stdin, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// containerd may die while it waits for Create. The task then does not exist: the next
// containerd finds nothing of it, and its shim ends (requirements.md#R4).
func TestACreateThatContainerdDidNotSurviveLeavesNothing(t *testing.T) {
	test := func(t *testing.T, c *column) {
		slow := faulty{name: "slow" + strings.ReplaceAll(c.release.name, ".", ""), programs: map[string]string{
			"app_add": `echo > reached; exec sleep 1000`,
		}}
		container := c.containerOf(t, c.client, c.image(t, c.client), slow.install(t), c.id(), []string{"true"})
		failed := make(chan error, 1)
		go func() {
			_, err := container.NewTask(c.context(t), cio.NullIO)
			failed <- err
		}()
		pods := filepath.Join(dataDir(c.daemon.Dir()), "pods/run/*/reached")
		wait.Observe(t, "the stage1 is at work", func() (bool, string) {
			found, err := filepath.Glob(pods)
			return len(found) > 0, fmt.Sprint(err)
		})
		c.restart(t, nil)
		if err := <-failed; err == nil {
			t.Error("the task was created")
		}
		c.expectNothingLeft(t)
	}
	native := []string{"native"} // every column would test the same stage1
	eachOf(t, native, test)
	eachOlder(t, native, test)
}
