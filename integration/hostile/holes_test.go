package hostile

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"

	"github.com/rkt/containerd-shim-rkt-v1/integration/hostile/loot"
)

const open = loot.Open

// execHoles has an exec try the ways out, and looks at it from outside.
func (l *lab) execHoles(task containerd.Task) {
	l.t.Helper()
	said, end := l.background(task, "holes", "sleep")
	defer end()
	l.verdicts(execStage, said)
}

// background executes an attacker in a container. It returns what it said before it was ready.
func (l *lab) background(task containerd.Task, args ...string) (said string, end func()) {
	l.t.Helper()
	s, err := task.Spec(l.ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	p := *s.Process
	p.Args = append([]string{"/bin/attacker"}, args...)
	l.chooseWay(&l.execs, &p)
	streams := []cio.Opt{cio.WithStreams(nil, &l.said, &l.said), cio.WithFIFODir(filepath.Join(l.daemon.Dir(), "fifo"))}
	process, err := task.Exec(l.ctx, l.id(), &p, cio.NewCreator(streams...))
	if err != nil {
		l.t.Fatalf("exec: %v", err)
	}
	end = func() {
		if _, err := process.Delete(l.ctx, containerd.WithProcessKill); err != nil {
			l.t.Errorf("delete exec: %v", err)
		}
	}
	if err := process.Start(l.ctx); err != nil {
		end()
		l.t.Fatalf("start exec: %v", err)
	}
	return l.awaitReady("the exec"), end
}

// debugHoles has a debug app try them.
func (l *lab) debugHoles(task containerd.Task) {
	l.t.Helper()
	cmd := l.debugCommand(task, "holes", "wait")
	cmd.Stdout, cmd.Stderr = &l.said, &l.said
	stdin, err := cmd.StdinPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	said, err := l.readyOr(ended)
	if err != nil {
		l.t.Fatalf("rktctl debug: %v: %s", err, said)
	}
	l.verdicts(debugStage, said)
	stdin.Close()
	select {
	case err := <-ended:
		if err != nil {
			l.t.Errorf("rktctl debug: %v: %s", err, l.said.take())
		}
	case <-time.After(patience):
		l.t.Errorf("the debug app does not end within %s", patience)
	}
}

// debugCommand has an attacker debug a container.
func (l *lab) debugCommand(task containerd.Task, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(l.ctx, filepath.Join(l.shims, "rktctl"), append([]string{"debug", task.ID(), "-i",
		"--image", reference(plainImage), "--", "/bin/attacker"}, args...)...)
	cmd.Env = append(os.Environ(), l.environment()...)
	return cmd
}

// huntBeside has an attacker in a container examine every process that it sees, while execs and a debug app are made
// there. If the container is in a pod, so is the victim.
func (l *lab) huntBeside(task containerd.Task, victim spec, debug bool) {
	l.t.Helper()
	_, end := l.background(task, "hunt")
	if victim.pod != nil {
		_ = l.victim(victim)
	}
	for range 2 {
		_ = l.exec(task, []string{"/bin/true"})
	}
	if debug {
		if out, err := l.debugCommand(task, "state").CombinedOutput(); err != nil {
			l.t.Errorf("rktctl debug: %v: %s", err, out)
		}
	}
	end()
	const way = "a process of the runtime is taken over"
	holes := map[string]string{way: "nothing new"}
	for _, what := range l.lootIn(l.said.take()) {
		if tracingRunc(l.column, what) == "" {
			holes[way] = open
			l.t.Log(what)
		}
	}
	l.record(execStage, holes)
}

// awaitReady returns what a continuous attack said before it was ready.
func (l *lab) awaitReady(what string) string {
	l.t.Helper()
	said, err := l.readyOr(nil)
	if err != nil {
		l.t.Fatalf("%s: %v: %s", what, err, said)
	}
	return said
}

// readyOr waits until an attacker is ready, or has ended.
func (l *lab) readyOr(ended <-chan error) (said string, err error) {
	limit, again := time.After(patience), time.NewTicker(10*time.Millisecond)
	defer again.Stop()
	for !strings.Contains(l.said.peek(), "ready\n") {
		select {
		case <-again.C:
		case err := <-ended:
			return l.said.take(), fmt.Errorf("it has ended: %v", err)
		case <-limit:
			return l.said.take(), fmt.Errorf("it is not ready within %s", patience)
		}
	}
	return l.said.take(), nil
}

// inRootCgroup returns the hierarchies in which some process of the node's containers is in a cgroup that
// is not a container's.
func (l *lab) inRootCgroup() (hierarchies []string) {
	pids, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range pids {
		environ, err := os.ReadFile(proc + "/environ")
		if err != nil || !strings.Contains("\x00"+string(environ), "\x00"+nodeVariable+"="+l.short+"\x00") {
			continue
		}
		cgroups, _ := os.ReadFile(proc + "/cgroup")
		for line := range strings.Lines(string(cgroups)) {
			_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
			name, path, _ := strings.Cut(rest, ":")
			name = cmp.Or(name, "cgroup2")
			if !strings.Contains(path, "/"+l.daemon.Namespace()+"/") && !slices.Contains(hierarchies, name) {
				hierarchies = append(hierarchies, name)
				l.t.Logf("%s is in %s", proc, strings.TrimSpace(line))
			}
		}
	}
	return hierarchies
}
