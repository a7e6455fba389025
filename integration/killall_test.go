package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// requirements.md#T9
func TestKillAllReachesEveryProcessWithAnySignal(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		log := filepath.Join(t.TempDir(), "log")
		id := c.id()
		c.run(t, []string{"-d", "--log-uri", "file://" + log}, id, "sh", "-c", "testprog signals & testprog signals & exec testprog signals").must(t)
		awaitCount(t, log, "ready\n", 3)
		for _, s := range []string{"1", "12", "35", "50", "64"} {
			c.ctr(t, "task", "kill", "--all", "-s", s, id).must(t)
			awaitCount(t, log, "\n"+s+"\n", 3)
		}
		// The signal ends the first process, and the others end with it at once.
		c.ctr(t, "task", "kill", "--all", "-s", "15", id).must(t)
		c.awaitStopped(t, id)
	})
}

// awaitCount waits until a file contains a text n times, also in overlapping lines.
func awaitCount(t *testing.T, file, text string, n int) {
	t.Helper()
	wait.Observe(t, fmt.Sprintf("%q is %d times in %s", text, n, filepath.Base(file)), func() (bool, string) {
		b, _ := os.ReadFile(file)
		return strings.Count(strings.ReplaceAll("\n"+string(b), "\n", "\n\n"), text) >= n, string(b)
	})
}

// requirements.md#T9
func TestACreatedTaskDiesOfWhatKills(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, 40} {
			for _, opts := range [][]containerd.KillOpts{nil, {containerd.WithKillAll}} {
				if s == 40 && c.usesRunc() {
					continue // runc's blocked process is a Go program, which ignores this signal
				}
				task := c.task(t, []string{"testprog", "sleep", "1000"})
				exited := c.wait(t, task)
				if err := task.Kill(ctx, s, opts...); err != nil {
					t.Errorf("kill with %d: %v", s, err)
				}
				select {
				case <-exited:
				case <-time.After(wait.Patience):
					t.Errorf("a created task survives signal %d, all: %v", s, opts != nil)
				}
			}
		}
	})
}

// runc's shim is left out: it sometimes publishes exits of execs after the exit of init.
// requirements.md#T9
func TestKillAllInAnExecStorm(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		for _, hostPID := range []bool{false, true} {
			ctx := c.context(t)
			var opts []oci.SpecOpts
			if hostPID {
				opts = append(opts, oci.WithHostNamespace(specs.PIDNamespace))
			}
			container := c.container(t, []string{"testprog", "sleep", "1000"}, opts...)
			events := c.listen(t, container.ID())
			task := c.newTask(t, container, cio.NullIO)
			if err := task.Start(ctx); err != nil {
				t.Fatal(err)
			}
			exited := c.wait(t, task)
			var wg sync.WaitGroup
			for worker := range 3 {
				wg.Go(func() {
					for i := 0; ; i++ {
						exec, err := task.Exec(ctx, fmt.Sprintf("e%d-%d", worker, i), process(t, ctx, task, "testprog", "sleep", "1000"), cio.NullIO)
						if err == nil {
							err = exec.Start(ctx)
						}
						if err != nil {
							return // the task has ended
						}
					}
				})
			}
			wait.Observe(t, "the storm is there", func() (bool, string) {
				words := events.words()
				started := slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "exec-started ") })
				return started && len(words) > 10, fmt.Sprint(words)
			})
			if err := task.Kill(ctx, syscall.SIGKILL, containerd.WithKillAll); err != nil {
				t.Errorf("kill: %v", err)
			}
			expectExit(t, exited, 137)
			wg.Wait()
			deleteTask(t, ctx, task)
			events.await(t, "delete 137")
			words := events.words()
			end := slices.Index(words, "exit init 137")
			for _, late := range words[end+1:] {
				if late != "delete 137" {
					t.Errorf("%q follows the exit of init (requirements.md#E1)", late)
				}
			}
			for _, word := range words[:end] {
				if id, ok := strings.CutPrefix(word, "exec-started "); ok && !slices.Contains(words, "exit "+id+" 137") {
					t.Errorf("exec %s was started, and its exit is not among %q", id, words)
				}
			}
		}
	})
}
