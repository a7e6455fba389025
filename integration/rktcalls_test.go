package integration

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// Every call of the Task service has its effect. TestImagesOfRktsAnswerInEveryState tests the
// answers in all states.
func TestImagesOfRktsServeEveryCall(t *testing.T) { // checklist 9, 11
	eachOfBoth(t, func(t *testing.T, n *rktNode) {
		n.servesEveryCall(t)
		n.expectNothingLeft(t)
	})
}

// served is a container to which every call is sent.
type served struct {
	*node
	file   string // its program writes to this file all the time
	task   client.Task
	exited <-chan client.ExitStatus
	events *taskEvents
	shim   int
}

// servesEveryCall runs a container and sends it every call that a client can send, a case for
// each call. A case needs those before it.
func (n *node) servesEveryCall(t *testing.T) {
	t.Helper()
	ctx, dir := n.context(t), t.TempDir()
	s := &served{node: n, file: filepath.Join(dir, "file")}
	container := n.container(t, []string{"sh", "-c", "testprog sleep 1000 & while :; do echo >>/volume/file; sleep 0.05; done"},
		oci.WithMounts([]specs.Mount{{Destination: "/volume", Type: "bind", Source: dir, Options: []string{"rbind", "rw"}}}))
	s.events = n.listen(t, container.ID())
	for _, c := range []struct {
		name string
		ask  func(t *testing.T)
	}{
		{"Create", func(t *testing.T) {
			s.task = n.newTask(t, container, cio.NullIO)
			expectStatus(t, n.context(t), s.task, client.Created)
		}},
		{"Start", func(t *testing.T) {
			var err error
			s.exited, err = s.task.Wait(ctx) // the wait goes on after this case
			must(t, err)
			must(t, s.task.Start(ctx))
			s.grows(t)
		}},
		{"State", s.state}, {"Connect", s.connect}, {"Pids", s.pids},
		{"Pause", s.pause}, {"Resume", s.resume}, {"Update", s.update}, {"Stats", s.stats},
		{"Checkpoint", func(t *testing.T) {
			if _, err := s.task.Checkpoint(n.context(t)); !errdefs.IsNotImplemented(err) {
				t.Errorf("%v, want that it is not implemented", err)
			}
		}},
		{"Exec", s.executesOne}, {"CloseIO", s.closesTheInput}, {"Kill of an exec", s.killsAnExec},
		{"Kill", func(t *testing.T) { kill(t, n.context(t), s.task, syscall.SIGTERM) }},
		{"Wait", func(t *testing.T) {
			expectExit(t, s.exited, 143)
			expectStatus(t, n.context(t), s.task, client.Stopped)
			expectExit(t, n.wait(t, s.task), 143) // a Wait that begins after the exit
		}},
		{"Delete", func(t *testing.T) {
			if last := deleteTask(t, n.context(t), s.task); last.ExitCode() != 143 {
				t.Errorf("exit code %d", last.ExitCode())
			}
			must(t, container.Delete(n.context(t), client.WithSnapshotCleanup))
		}},
		{"Shutdown", func(t *testing.T) { // containerd sends it
			wait.Observe(t, "the shim has ended", func() (bool, string) { return !alive(s.shim), fmt.Sprint(s.shim) })
		}},
		{"events", func(t *testing.T) {
			s.events.expect(t, "create", "start", "paused", "resumed",
				"paused", "resumed", // published by the client's Checkpoint
				"exec-added says", "exec-started says", "exit says 7",
				"exec-added reads", "exec-started reads", "exit reads 0", "exec-added killed", "exec-started killed", "exit killed 137",
				"exit init 143", "delete 143")
		}},
		{"Kill of all", n.killsAll},
	} {
		if !t.Run(c.name, c.ask) {
			return
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// written returns how much the program has written.
func (s *served) written(t *testing.T) int64 {
	t.Helper()
	st, err := os.Stat(s.file)
	if os.IsNotExist(err) {
		return 0
	}
	must(t, err)
	return st.Size()
}

func (s *served) grows(t *testing.T) {
	t.Helper()
	before := s.written(t)
	wait.Observe(t, "the program runs", func() (bool, string) { return s.written(t) > before, fmt.Sprint(before) })
}

func (s *served) state(t *testing.T) {
	expectStatus(t, s.context(t), s.task, client.Running)
	if pid := s.task.Pid(); !alive(int(pid)) {
		t.Errorf("there is no process %d", pid)
	}
}

func (s *served) connect(t *testing.T) {
	shim := s.dialShim(t, s.daemon.Bundle(s.task.ID()))
	defer shim.client.Close()
	var r taskapi.ConnectResponse
	shim.call(t, "Connect", &taskapi.ConnectRequest{ID: s.task.ID()}, &r)
	if s.shim = int(r.ShimPid); r.TaskPid != s.task.Pid() || !alive(s.shim) {
		t.Errorf("shim %d, task %d, and State says %d", r.ShimPid, r.TaskPid, s.task.Pid())
	}
}

func (s *served) pids(t *testing.T) {
	wait.Observe(t, "both processes are listed", func() (bool, string) {
		pids, err := s.task.Pids(s.context(t))
		has := map[uint32]bool{}
		for _, p := range pids {
			has[p.Pid] = true
		}
		return err == nil && len(pids) >= 2 && has[s.task.Pid()], fmt.Sprint(pids, err)
	})
}

func (s *served) pause(t *testing.T) {
	must(t, s.task.Pause(s.context(t)))
	expectStatus(t, s.context(t), s.task, client.Paused)
	wait.Still(t, "the file of what is paused", func() int64 { return s.written(t) })
}

func (s *served) resume(t *testing.T) {
	must(t, s.task.Resume(s.context(t)))
	expectStatus(t, s.context(t), s.task, client.Running)
	s.grows(t)
}

func (s *served) update(t *testing.T) {
	limit := int64(64 << 20)
	must(t, s.task.Update(s.context(t), client.WithResources(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}})))
	memoryLimit.expect(t, s.task, "67108864")
}

func (s *served) stats(t *testing.T) {
	if f := readFigures(t, s.column, s.task); f.processes < 2 || f.cpu == 0 || f.memory == 0 || f.limit != 64<<20 {
		t.Errorf("%+v", f)
	}
}

// executes starts an exec in a task.
func (n *node) executes(t *testing.T, task client.Task, streams cio.Creator, id string, args ...string) (client.Process, <-chan client.ExitStatus) {
	t.Helper()
	ctx := n.context(t)
	p, err := task.Exec(ctx, id, process(t, ctx, task, args...), streams)
	must(t, err)
	expectStatus(t, ctx, p, client.Created)
	exited := n.wait(t, p)
	must(t, p.Start(ctx))
	return p, exited
}

func (s *served) executesOne(t *testing.T) {
	var out bytes.Buffer
	p, exited := s.executes(t, s.task, cio.NewCreator(cio.WithStreams(nil, &out, nil), cio.WithFIFODir(s.fifoDir(nil))), "says", "sh", "-c", "echo said; exit 7")
	expectExit(t, exited, 7)
	expectStatus(t, s.context(t), p, client.Stopped)
	awaitOutput(t, p)
	deleteTask(t, s.context(t), p)
	if out.String() != "said\n" {
		t.Errorf("it said %q", out.String())
	}
}

func (s *served) closesTheInput(t *testing.T) {
	in, feed := io.Pipe()
	var out streams
	p, exited := s.executes(t, s.task, out.creator(s.column, in), "reads", "cat")
	_, err := feed.Write([]byte("before the end\n"))
	must(t, err)
	must(t, feed.Close())
	must(t, p.CloseIO(s.context(t), client.WithStdinCloser))
	expectExit(t, exited, 0)
	awaitOutput(t, p)
	deleteTask(t, s.context(t), p)
	if out.stdout.String() != "before the end\n" {
		t.Errorf("output %q", out.stdout.String())
	}
}

func (s *served) killsAnExec(t *testing.T) {
	p, exited := s.executes(t, s.task, cio.NullIO, "killed", "sleep", "1000")
	expectStatus(t, s.context(t), p, client.Running)
	kill(t, s.context(t), p, syscall.SIGKILL)
	expectExit(t, exited, 137)
	deleteTask(t, s.context(t), p)
}

// killsAll ends a container by a signal to all of its processes.
func (n *node) killsAll(t *testing.T) {
	ctx := n.context(t)
	task := n.aTask(t, cio.NullIO, []string{"sh", "-c", "testprog ignore-term & testprog ignore-term & wait"})
	exited := n.wait(t, task)
	must(t, task.Start(ctx))
	var all []client.ProcessInfo
	wait.Observe(t, "its processes run", func() (bool, string) {
		var err error
		all, err = task.Pids(ctx)
		return err == nil && len(all) >= 3, fmt.Sprint(all, err)
	})
	must(t, task.Kill(ctx, syscall.SIGKILL, client.WithKillAll))
	expectExit(t, exited, 137)
	expectEnd(t, all)
	n.drop(t, task)
}
