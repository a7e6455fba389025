package conformance

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
)

// startChecks check app/start, and the program's environment, descriptors and terminal.
func startChecks() []Check {
	return []Check{
		basic("start/program", "5 app/start", "the program runs with the arguments, the environment, the working directory and the user that the spec has", checkProgram),
		basic("start/relative-root", "3", "config.json may name the root relative to the bundle, as containerd does", checkRelativeRoot),
		basic("start/descriptors", "3", "the program has the descriptors 0, 1 and 2, and no other", func(ctx context.Context, t *trial) error {
			a := must(t.wholePod().start(ctx, nil, "inspect"))
			return onlyStdio(ctx, a.streams, !t.mutable())
		}),
		inPod("start/no-format", "5 app/start", "a file that the kernel does not execute does not run: app/add or app/start fails, or the app ends with 126 or 127", checkNoFormat),
		inPod("start/ended", "5 app/start", "app/start of an app that has ended returns 6", func(ctx context.Context, b *barePod) error {
			a := must(b.add(ctx, "app", nil, "wait"))
			try(a.kill(ctx))
			return codeOf("app/start", a.invoke(ctx, abi.AppStart), abi.ExitFailedPrecondition)
		}),
	}
}

func checkRelativeRoot(ctx context.Context, t *trial) error {
	a, err := t.wholePod().start(ctx, func(s *specs.Spec) {
		s.Root.Path = filepath.Join("..", must(filepath.Rel(t.dir, t.rootfs))) // a bundle is in the trial's directory
	}, "exit", "73")
	if err != nil {
		return err
	}
	return a.ends(ctx, "", 73)
}

// clientsTrace is the trace context of a client that traces. An app gets nothing of it.
const clientsTrace abi.Traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func checkProgram(ctx context.Context, t *trial) error {
	ctx = pod.WithTrace(ctx, clientsTrace)
	v := t.values
	want := surroundings{Args: []string{"inspect", v.argument, ""}, Cwd: v.data}
	a := must(t.wholePod().start(ctx, func(s *specs.Spec) {
		s.Process.Cwd = want.Cwd
		s.Process.Env = append(s.Process.Env, v.environment)
		s.Process.User = specs.User{UID: v.user, GID: v.group}
		if t.declares(s) != nil {
			s.Process.User = specs.User{}
		}
		want.UID, want.GID = int(s.Process.User.UID), int(s.Process.User.GID)
	}, want.Args...))
	return hasFound(ctx, a.streams, want, v.environment)
}

// hasFound compares the surroundings that a program reports with the expected ones.
func hasFound(ctx context.Context, s *streams, want surroundings, env string) error {
	switch got := must(s.surroundings(ctx, 0)); {
	case !slices.Equal(got.Args, want.Args):
		return fmt.Errorf("the program's arguments are %q, want %q", got.Args, want.Args)
	case !slices.Contains(got.Env, env):
		return fmt.Errorf("the program's environment %q is without %q", got.Env, env)
	case slices.ContainsFunc(got.Env, func(e string) bool { return len(e) > 4 && e[:4] == "RKT_" }):
		return fmt.Errorf("the program's environment %q has variables of the ABI", got.Env)
	case got.Cwd != want.Cwd:
		return fmt.Errorf("the program's working directory is %q, want %q", got.Cwd, want.Cwd)
	case got.UID != want.UID || got.GID != want.GID:
		return fmt.Errorf("the program runs as %d:%d, want %d:%d", got.UID, got.GID, want.UID, want.GID)
	}
	return nil
}

// onlyStdio fails if a program has other descriptors than its streams. With lock it allows
// one directory, because the app of an immutable pod may be the run process itself, which
// keeps the lock open.
func onlyStdio(ctx context.Context, s *streams, lock bool) error {
	got := must(s.surroundings(ctx, 0))
	if lock && len(got.Directories) == 1 {
		got.Descriptors = slices.DeleteFunc(got.Descriptors, func(fd int) bool { return fd == got.Directories[0] })
	}
	if !slices.Equal(got.Descriptors, []int{0, 1, 2}) {
		return fmt.Errorf("the program has the descriptors %v", got.Descriptors)
	}
	return nil
}

func checkNoFormat(ctx context.Context, b *barePod) error {
	a, err := b.add(ctx, "app", func(s *specs.Spec) { s.Process.Args = []string{"/bin/no-format"} })
	if err != nil {
		return nil
	}
	if err := a.invoke(ctx, abi.AppStart); err != nil {
		b.t.notes["a failed exec"] = "is the error of app/start"
		return nil
	}
	st, err := a.ended(ctx)
	if err != nil {
		return fmt.Errorf("app/start has succeeded: %w", err)
	}
	if st.Code != 126 && st.Code != 127 && st.Code != 1 && st.Code != 255 {
		return fmt.Errorf("app/start has succeeded, and the app has ended with %d", st.Code)
	}
	b.t.notes["a failed exec"] = "is an app that ends at once"
	return nil
}

// streamChecks check descriptors 0, 1 and 2.
func streamChecks() []Check {
	return []Check{
		basic("streams/output", "5 app/add",
			"output and errors arrive apart, as the program has written them, and with nothing of the stage1's own", func(ctx context.Context, t *trial) error {
				a := must(t.wholePod().start(ctx, nil, "say", "out\r\n\x1b", "err"))
				return a.streams.holds(ctx, "out\r\n\x1b", "err")
			}),
		basic("streams/input", "5 app/add", "input reaches the program, and its end does", func(ctx context.Context, t *trial) error {
			a := must(t.wholePod().start(ctx, nil, "echo"))
			try(errors.Join(a.streams.write("some input"), a.streams.CloseStdin(), a.streams.holds(ctx, "some input", "")))
			return a.ends(ctx, "", 0)
		}),
	}
}

// holds waits for the end of both streams and compares them.
func (s *streams) holds(ctx context.Context, out, errors string) error {
	for _, c := range []struct {
		name string
		t    *transcript
		want string
	}{{"output", s.out, out}, {"error output", s.err, errors}} {
		got, err := c.t.all(ctx)
		if err != nil {
			return err
		}
		if got != c.want {
			return fmt.Errorf("the %s is %q, want %q", c.name, got, c.want)
		}
	}
	return nil
}

// signalChecks check signals to apps.
func signalChecks() []Check {
	return []Check{
		basic("signal/handled", "5 app/signal", "a signal reaches the program, which may handle it", func(ctx context.Context, t *trial) error {
			a := must(t.wholePod().waiting(ctx, nil))
			try(a.w.Kill(ctx, a.id, "", int(syscall.SIGUSR1), false))
			return a.ends(ctx, "", signalled+uint32(syscall.SIGUSR1))
		}),
		basic("signal/kill", "5 app/signal", "SIGKILL ends an app with 137", func(ctx context.Context, t *trial) error {
			a := must(t.wholePod().waiting(ctx, nil))
			try(a.w.Kill(ctx, a.id, "", int(syscall.SIGKILL), false))
			return a.ends(ctx, "", 137)
		}),
		mutable("signal/created", "5 app/signal",
			"SIGTERM ends an app that was added and not started, with 143", func(ctx context.Context, t *trial) error {
				a := must(t.wholePod().create(ctx, nil, "wait"))
				try(a.w.Kill(ctx, a.id, "", int(syscall.SIGTERM), false))
				return a.ends(ctx, "", 128+uint32(syscall.SIGTERM))
			}),
		inPod("signal/gone", "5 app/signal",
			"app/signal to a process that has gone, and to an app that never was, returns 5", func(ctx context.Context, b *barePod) error {
				a := must(b.start(ctx, "app", "exit", "0"))
				must(a.ended(ctx))
				c := a.call(abi.AppSignal)
				c.Request.Signal = int(syscall.SIGTERM)
				try(codeOf("app/signal to an app that has ended", b.stage1.Invoke(ctx, c), abi.ExitNotFound))
				c.Request.App = "nobody"
				return codeOf("app/signal to an app that never was", b.stage1.Invoke(ctx, c), abi.ExitNotFound)
			}, abi.AppSignal),
	}
}

// exitChecks check the reports of exits.
func exitChecks() []Check {
	return []Check{
		basic("exit/code", "6", "the exit code of an app is its program's", func(ctx context.Context, t *trial) error {
			a := must(t.wholePod().start(ctx, nil, "exit", "73"))
			return a.ends(ctx, "", 73)
		}),
		inPod("exit/recorded", "6", "the exit is on record before the process is reaped, with a signal told from a code", checkRecorded),
		mutable("exit/notice", "3", "the notice of an exit comes after its record, is a line of its own, and says the same if it was asked how the process ended", checkNotice),
	}
}

func checkRecorded(ctx context.Context, b *barePod) error {
	a := must(b.start(ctx, "app", "wait"))
	try(a.streams.out.awaitWord(ctx, "waiting"))
	before := time.Now()
	try(proc.Signal(a.PID, a.StartTime, syscall.SIGKILL))
	reaped := func() bool { _, err := proc.ReadStat(a.PID); return err != nil }
	try(eventually(ctx, "the killed process is reaped", reaped))
	st, err := abi.ReadStatus(stage1.StatusDir(b.dir), a.name, "")
	switch {
	case err != nil:
		return fmt.Errorf("the process is reaped, and its exit is not on record: %w", err)
	case st.Code != 137 || st.Signal != 0 && st.Signal != 9:
		return fmt.Errorf("the record says code %d, signal %d, and it was killed by signal 9", st.Code, st.Signal)
	case st.Time.Before(before.Add(-2*time.Second)) || st.Time.After(time.Now().Add(2*time.Second)):
		return fmt.Errorf("the record says that it ended at %s, and it was at %s", st.Time, before)
	}
	b.t.notes["exits are recorded by"] = a.Recorder.String()
	return nil
}

func checkNotice(ctx context.Context, t *trial) error {
	b := t.barePod()
	n, err := b.noticeOf3(ctx)
	if n == nil || err != nil {
		return err
	}
	if n.err != nil {
		return n.err
	}
	st, err := abi.ReadStatus(stage1.StatusDir(b.dir), n.said.App, "")
	if err != nil {
		return fmt.Errorf("the notice has come, and the exit is not on record: %w", err)
	}
	if s := n.said.Status; s != nil && (s.Code != st.Code || s.Signal != st.Signal) {
		return fmt.Errorf("the notice says code %d, signal %d, and the record code %d, signal %d", s.Code, s.Signal, st.Code, st.Signal)
	}
	return checkBareNotice(ctx, t, b)
}

// checkBareNotice repeats the check as a stage 0 of an older release. b must have ended.
func checkBareNotice(ctx context.Context, t *trial, b *barePod) error {
	try(b.end(ctx))
	b = t.barePodIn("older")
	b.words = false
	n, err := b.noticeOf3(ctx)
	if n != nil && err == nil && (n.err != nil || n.said.Status != nil) {
		return errors.New("the notice has words that say how the process ended, and stage 0 has not asked for them: one of an older release would drop it")
	}
	return err
}

// noticeOf3 runs a program that exits with 3, and returns the notice of that exit, or nil
// if the stage1 does not record exits.
func (b *barePod) noticeOf3(ctx context.Context) (*notice, error) {
	b.run(ctx)
	a := must(b.start(ctx, "app", "exit", "3"))
	st := must(a.ended(ctx)) // by the notice, if the stage1 records exits
	if st.Code != 3 {
		return nil, fmt.Errorf("stage 0 is told %d, and the program has ended with 3", st.Code)
	}
	if a.Recorder != pod.RecordedByStage1 {
		return nil, nil
	}
	return b.notice("app", ""), nil
}
