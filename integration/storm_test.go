package integration

import (
	"context"
	"errors"
	"fmt"
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

// clients is the number of clients of a storm.
const clients = 16

// often is repetitions for cases that have a long form of their own: see -long.
func (c *column) often(native, others, long int) int {
	if *longFlag {
		return long
	}
	return c.repetitions(native, others)
}

// ids are container ids that no other test has.
func (c *column) ids(n int) []string {
	var ids []string
	for range n {
		ids = append(ids, c.id())
	}
	return ids
}

// atOnce calls do for every element, with as many calls at once as there are clients, and fails
// the test for each error.
func atOnce[T any](t *testing.T, all []T, do func(T) error) {
	t.Helper()
	queue := make(chan T)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for one := range queue {
				if err := do(one); err != nil {
					t.Errorf("%v: %v", one, err)
				}
			}
		})
	}
	for _, one := range all {
		queue <- one
	}
	close(queue)
	wg.Wait()
}

// ledger collects the task events of all containers, by container and in order.
type ledger struct {
	mu sync.Mutex
	of map[string][]string
}

// listenToAll is listen for all containers of a column.
func (c *column) listenToAll(t *testing.T) *ledger {
	t.Helper()
	l := &ledger{of: map[string][]string{}}
	c.subscribe(t, func(event any) {
		id, word := inAWord(event)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.of[id] = append(l.of[id], word)
	})
	return l
}

func (l *ledger) words(id string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.of[id])
}

// runAndRemove makes all calls for a container that ends at once, from Create to the removal.
func (c *column) runAndRemove(ctx context.Context, container containerd.Container, code uint32) error {
	task, err := container.NewTask(ctx, cio.NullIO)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	exited, err := task.Wait(ctx)
	if err != nil {
		return fmt.Errorf("wait: %w", err)
	}
	if err := task.Start(ctx); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	select {
	case s := <-exited:
		if s.Error() != nil || s.ExitCode() != code {
			return fmt.Errorf("exit code %d, want %d: %w", s.ExitCode(), code, s.Error())
		}
	case <-time.After(wait.Patience):
		return errors.New("its exit was never seen")
	}
	if _, err := task.Delete(ctx); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return container.Delete(ctx, containerd.WithSnapshotCleanup)
}

// However many exits there are, none is lost, doubled, or published before the start
// (containerd#10589, containerd#8557; requirements.md#E1, requirements.md#X2).
func TestEveryExitOfAStormIsSeenOnce(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		events := c.listenToAll(t)
		img := c.image(t, c.client)
		ids := c.ids(c.often(150, 30, 2000))
		atOnce(t, ids, func(id string) error {
			container, err := c.makeContainer(ctx, c.client, img, c.runtime, id, []string{"true"})
			if err != nil {
				return err
			}
			return c.runAndRemove(ctx, container, 0)
		})
		want := []string{"create", "start", "exit init 0", "delete 0"}
		for _, id := range ids {
			if got := events.words(id); !slices.Equal(got, want) {
				wait.Observe(t, "all events of "+id, func() (bool, string) {
					got = events.words(id)
					return slices.Equal(got, want), fmt.Sprintf("%q, want %q", got, want)
				})
			}
		}
	})
}

// When a container ends, the exits of its execs are published before its own exit, each once
// (containerd#9719; requirements.md#E1). The container is in the host's PID namespace, so the
// kernel does not end the execs.
func TestTheExitsOfTwoHundredExecsComeBeforeInits(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		c.execsEndWithInit(t)
		c.execsEndWithInit(t, oci.WithHostNamespace(specs.PIDNamespace))
	})
}

func (c *column) execsEndWithInit(t *testing.T, opts ...oci.SpecOpts) {
	t.Helper()
	ctx := c.context(t)
	container := c.container(t, []string{"testprog", "sleep", "1000"}, opts...)
	events := c.listen(t, container.ID())
	task := c.newTask(t, container, cio.NullIO)
	exited := c.wait(t, task)
	if err := task.Start(ctx); err != nil {
		t.Fatal(err)
	}
	spec := process(t, ctx, task, "sleep", "1000")
	var execs []string
	for i := range c.often(100, 20, 200) {
		execs = append(execs, fmt.Sprintf("e%d", i))
	}
	atOnce(t, execs, func(id string) error {
		exec, err := task.Exec(ctx, id, spec, cio.NullIO)
		if err != nil {
			return err
		}
		return exec.Start(ctx)
	})
	kill(t, ctx, task, syscall.SIGKILL)
	expectExit(t, exited, 137)
	deleteTask(t, ctx, task)
	events.await(t, "delete 137")
	words := events.words()
	end := slices.Index(words, "exit init 137")
	count := map[string]int{}
	for i, w := range words {
		count[w]++
		if strings.HasPrefix(w, "exit ") && i > end {
			t.Errorf("%q is event %d, the exit of init is %d", w, i, end)
		}
	}
	for _, id := range append(execs, "init") {
		if n := count["exit "+id+" 137"]; n != 1 {
			t.Errorf("%d exits of %s", n, id)
		}
	}
}

// A client that asks for many containers at once waits longer and gets all of them: no step of
// a start has a deadline that a busy machine misses (containerd#1813, containerd#4068).
func TestManyCreatesAtOnceAllSucceed(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		img := c.image(t, c.client)
		var all sync.WaitGroup
		for _, id := range c.ids(c.often(60, 15, 200)) {
			container := c.containerOf(t, c.client, img, c.runtime, id, []string{"testprog", "exit", "3"})
			all.Go(func() {
				if err := c.runAndRemove(ctx, container, 3); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			})
		}
		all.Wait()
	})
}
