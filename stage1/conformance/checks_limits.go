package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
)

// limitChecks check the app's cgroup, or the entrypoints that replace it.
func limitChecks() []Check {
	check := func(id, section, sentence string, run func(context.Context, *trial) error) Check {
		return Check{ID: id, Level: LevelLimits, Section: section, Sentence: sentence, run: run}
	}
	return []Check{
		check("pause/app", "5 app/pause", "a paused app stands still until it is resumed", checkPause),
		demanded(LevelLimits, nil)("pause/exec", "5 app/pause", "a paused app's execs stand still, too", checkPauseExec, abi.Enter),
		check("pause/kill", "5 app/pause", "SIGKILL ends a paused app", func(ctx context.Context, t *trial) error {
			a := must(t.wholePod().waiting(ctx, nil))
			try(a.w.Pause(ctx, a.id))
			try(a.w.Kill(ctx, a.id, "", int(syscall.SIGKILL), false))
			return a.ends(ctx, "", 137)
		}),
		check("limit/memory", "7", "a memory limit is in force: an app that passes it is killed", func(ctx context.Context, t *trial) error {
			a := must(t.wholePod().start(ctx, memory(64), "eat", "256"))
			return a.ends(ctx, "", 137)
		}),
		check("update/memory", "5 app/update", "a limit that is lowered while the app runs is in force", func(ctx context.Context, t *trial) error {
			a := must(t.wholePod().start(ctx, memory(512), "feed", "256"))
			lower := int64(64 << 20)
			res := resources(specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &lower, Swap: &lower}})
			if err := a.w.Update(ctx, a.id, res); err != nil {
				res = resources(specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &lower}})
				if retry := a.w.Update(ctx, a.id, res); retry != nil {
					return errors.Join(err, retry)
				}
			}
			try(a.streams.write("x"))
			return a.ends(ctx, "", 137)
		}),
		check("stats/memory", "7", "the statistics of an app count what it uses", checkStats),
		check("stats/processes", "7",
			"the list of an app's processes has its first one, and none of the stage1's", func(ctx context.Context, t *trial) error {
				a := must(t.wholePod().waiting(ctx, nil))
				infos := must(a.w.Pids(ctx, a.id))
				if len(infos) != 1 || infos[0].PID != a.pid && !t.image.Owns(abi.OwnProcesses) {
					return fmt.Errorf("the list is %v, want process %d alone", infos, a.pid)
				}
				return nil
			}),
		check("oom/event", "7",
			"an app that the kernel kills for want of memory is told as such, before its exit", func(ctx context.Context, t *trial) error {
				a := must(t.wholePod().start(ctx, memory(64), "eat", "256"))
				kinds := must(a.w.events.kinds(ctx, a.id, pod.EventExited))
				if !slices.Contains(kinds, pod.EventOOM) || slices.Index(kinds, pod.EventOOM) > slices.Index(kinds, pod.EventExited) {
					return fmt.Errorf("the events are %v: no OOM before the exit", kinds)
				}
				return nil
			}),
	}
}

// memory returns a change of a spec that limits an app's memory.
func memory(megabytes int64) func(*specs.Spec) {
	limit := megabytes << 20
	return func(s *specs.Spec) {
		if s.Linux == nil {
			s.Linux = &specs.Linux{}
		}
		s.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}
		if swap() {
			s.Linux.Resources.Memory.Swap = &limit
		}
	}
}

// swap reports whether the kernel accounts swap.
func swap() bool {
	v1, err := filepath.Glob("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")
	if err == nil && len(v1) > 0 {
		return true
	}
	b, err := os.ReadFile("/proc/swaps")
	return err == nil && strings.Count(string(b), "\n") > 1 && !hasMemoryV1()
}

func hasMemoryV1() bool {
	_, err := os.Stat("/sys/fs/cgroup/memory")
	return err == nil
}

// standsStill pauses a program and fails if the program writes output before it is
// resumed.
func standsStill(ctx context.Context, a *wholeApp, s *streams) error {
	must(s.out.await(ctx, func(text string) bool { return strings.Count(text, "\n") > 2 }))
	try(a.w.Pause(ctx, a.id))
	time.Sleep(settle() / 3) // for output that has not arrived yet
	before := s.out.now()
	time.Sleep(settle())
	after := s.out.now()
	try(a.w.Resume(ctx, a.id))
	if before != after {
		return fmt.Errorf("while it was paused it has written %d bytes", len(after)-len(before))
	}
	if _, err := s.out.await(ctx, func(text string) bool { return len(text) > len(after) }); err != nil {
		return fmt.Errorf("after resume: %w", err)
	}
	return nil
}

func checkPause(ctx context.Context, t *trial) error {
	a := must(t.wholePod().start(ctx, nil, "tick"))
	return standsStill(ctx, a, a.streams)
}

func checkPauseExec(ctx context.Context, t *trial) error {
	a := must(t.wholePod().waiting(ctx, nil))
	s := must(a.exec(ctx, "exec", nil, "tick"))
	return standsStill(ctx, a, s.streams)
}

func checkStats(ctx context.Context, t *trial) error {
	const eaten = 64
	a := must(t.wholePod().start(ctx, nil, "eat", fmt.Sprint(eaten)))
	try(a.streams.out.awaitWord(ctx, "eaten"))
	st := must(a.w.Stats(ctx, a.id))
	if used := st.Usage[cgroup.MemoryUsage].Current; used < eaten<<20 {
		return fmt.Errorf("the app uses more than %d MB, and its statistics say %d bytes", eaten, used)
	}
	return nil
}

// userChecks check user namespaces.
func userChecks() []Check {
	check := func(id, section, sentence string, run func(context.Context, *trial) error, needs ...abi.Entrypoint) Check {
		c := demanded(LevelUser, draw(0).askMapping)(id, section, sentence, run, needs...)
		c.unless = abi.OwnProcesses
		return c
	}
	return []Check{
		check("user/mapped", "5 app/add", "in a user namespace root is somebody else outside", func(ctx context.Context, t *trial) error {
			a := must(t.mappedApp(ctx))
			return t.values.isMapped(a.pid)
		}),
		check("user/exec", "5 enter", "an exec is in the user namespace of its app", func(ctx context.Context, t *trial) error {
			a := must(t.mappedApp(ctx))
			s := must(a.exec(ctx, "exec", nil, "wait"))
			try(s.out.awaitWord(ctx, "waiting"))
			return t.values.isMapped(s.pid)
		}, abi.Enter),
	}
}

// mappedApp makes an app in a user namespace. Users of that namespace must be able to
// reach the app's root.
func (t *trial) mappedApp(ctx context.Context) (*wholeApp, error) {
	for dir := t.rootfs; dir != "/"; dir = filepath.Dir(dir) {
		if must(os.Stat(dir)).Mode()&0o001 == 0 {
			return nil, fmt.Errorf("this cannot be checked below %s, which others may not enter: set TMPDIR to another directory", dir)
		}
	}
	return t.wholePod().waiting(ctx, t.values.askMapping)
}

// askMapping asks for a user namespace.
func (v *values) askMapping(s *specs.Spec) {
	s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: v.mapped, Size: 65536}}
	s.Linux.UIDMappings, s.Linux.GIDMappings = ids, ids
}

// isMapped fails unless root in the process's user namespace is the user of askMapping here.
func (v *values) isMapped(pid int) error {
	want := fmt.Sprintf("0 %d 65536", v.mapped)
	for _, file := range []string{"uid_map", "gid_map"} {
		b := must(os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file)))
		if got := strings.Join(strings.Fields(string(b)), " "); got != want {
			return fmt.Errorf("%s of process %d is %q, want %s", file, pid, got, want)
		}
	}
	return nil
}
