package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
)

// enterChecks check further processes in an app.
func enterChecks() []Check {
	demanded := demanded(LevelExec, nil)
	check := func(id, sentence string, run func(context.Context, *wholeApp) error) Check {
		return demanded("enter/"+id, "5 enter", sentence, func(ctx context.Context, t *trial) error {
			return run(ctx, must(t.wholePod().waiting(ctx, nil)))
		}, abi.Enter)
	}
	fails := func(id, sentence string, path string, words ...string) Check {
		return check(id, sentence, func(ctx context.Context, a *wholeApp) error {
			_, err := a.exec(ctx, "exec", func(p *specs.Process) { p.Args = []string{path} })
			return failsWith("enter", err, words)
		})
	}
	ended := demanded("enter/ended", "2", "enter into an app that has ended returns 5 or 6", checkEnterEnded, abi.Enter)
	ended.mutable = true
	return []Check{
		check("program", "an exec runs with the arguments, the environment, the working directory and the user of its process", checkEntered),
		check("inside", "an exec is in the namespaces and the cgroup of its app", checkInside),
		check("streams", "an exec has streams of its own, with nothing of the stage1's", func(ctx context.Context, a *wholeApp) error {
			s := must(a.exec(ctx, "exec", nil, "say", "out", "err"))
			return s.holds(ctx, "out", "err")
		}),
		check("descriptors", "an exec has the descriptors 0, 1 and 2, and no other", func(ctx context.Context, a *wholeApp) error {
			s := must(a.exec(ctx, "exec", nil, "inspect"))
			return onlyStdio(ctx, s.streams, false)
		}),
		check("code", "the exit code of an exec is its program's", func(ctx context.Context, a *wholeApp) error {
			must(a.exec(ctx, "exec", nil, "exit", "74"))
			return a.ends(ctx, "exec", 74)
		}),
		check("early", "the exit code of an exec is its program's if the program ends before enter has returned", checkEarlyExits),
		check("late", "the exit code of an exec is its program's if the program ends long after enter has reported it", checkLateExit),
		check("signal", "a signal to an exec reaches it, and not the app", checkExecSignal),
		fails("missing", "a program that is missing fails enter, in words that clients look for", "/bin/absent",
			"no such file or directory", "executable file not found in $PATH"),
		fails("not-executable", "a file without the right to be executed fails enter as permission denied", "/bin/not-executable", "permission denied"),
		fails("no-format", "enter reports ready once the program has been executed: a file that the kernel does not execute fails it", "/bin/no-format"),
		check("several", "several execs run at the same time", checkSeveral),
		ended,
	}
}

func checkEntered(ctx context.Context, a *wholeApp) error {
	v := a.w.t.values
	want := surroundings{Args: []string{"inspect", v.argument}, Cwd: v.data}
	s := must(a.exec(pod.WithTrace(ctx, clientsTrace), "exec", func(p *specs.Process) {
		p.Cwd, p.Env = want.Cwd, append(p.Env, v.environment)
		p.User = specs.User{UID: v.user, GID: v.group}
		if a.w.t.declares(&specs.Spec{Process: p}) != nil {
			p.User = specs.User{}
		}
		want.UID, want.GID = int(p.User.UID), int(p.User.GID)
	}, want.Args...))
	return hasFound(ctx, s.streams, want, v.environment)
}

func checkInside(ctx context.Context, a *wholeApp) error {
	s := must(a.exec(ctx, "exec", nil, "wait"))
	try(s.out.awaitWord(ctx, "waiting"))
	proxies := a.w.t.image.Owns(abi.OwnProcesses)
	if !proxies {
		theirs, its := namespacesOf(a.pid), namespacesOf(s.pid)
		for ns := range theirs {
			if its[ns] != theirs[ns] {
				return fmt.Errorf("the %s namespace of the exec is %s, and that of the app %s", ns, its[ns], theirs[ns])
			}
		}
	}
	infos := must(a.w.Pids(ctx, a.id))
	if !slices.ContainsFunc(infos, func(i pod.ProcessInfo) bool { return (i.PID == s.pid || proxies) && i.Exec == "exec" }) {
		return fmt.Errorf("process %d of the exec is not in the cgroup of its app, which has %v", s.pid, infos)
	}
	theirs, its := must(cgroup.Of(a.pid)), must(cgroup.Of(s.pid))
	for hierarchy := range theirs {
		if its[hierarchy] != theirs[hierarchy] {
			return fmt.Errorf("in the hierarchy %q process %d of the exec is in %s, and that of the app in %s", hierarchy, s.pid, its[hierarchy], theirs[hierarchy])
		}
	}
	return nil
}

// earlyExits is the number of programs that end at once. Their ends come before and after the
// return of an enter that does not wait for them.
const earlyExits = 8

func checkEarlyExits(ctx context.Context, a *wholeApp) error {
	for i := range earlyExits {
		id, code := pod.ExecID(fmt.Sprintf("exec-%d", i)), uint32(80+i)
		must(a.exec(ctx, id, nil, "exit", fmt.Sprint(code)))
		try(a.ends(ctx, id, code))
	}
	return nil
}

// checkLateExit gives an enter that does not wait for its process the time to return.
func checkLateExit(ctx context.Context, a *wholeApp) error {
	s := must(a.exec(ctx, "exec", nil, "echo", "79"))
	time.Sleep(settle())
	try(s.CloseStdin())
	return a.ends(ctx, "exec", 79)
}

func checkExecSignal(ctx context.Context, a *wholeApp) error {
	s := must(a.exec(ctx, "exec", nil, "wait"))
	try(s.out.awaitWord(ctx, "waiting"))
	try(a.w.Kill(ctx, a.id, "exec", int(syscall.SIGTERM), false))
	try(a.ends(ctx, "exec", signalled+uint32(syscall.SIGTERM)))
	if st, err := a.w.Status(a.id, ""); err != nil || st.State != pod.Running {
		return fmt.Errorf("the app is %s: %w", st.State, err)
	}
	return nil
}

func checkSeveral(ctx context.Context, a *wholeApp) error {
	return atOnce(func(i int) error {
		id := pod.ExecID(fmt.Sprintf("exec-%d", i))
		must(a.exec(ctx, id, nil, "exit", fmt.Sprint(20+i)))
		return a.ends(ctx, id, uint32(20+i))
	})
}

func checkEnterEnded(ctx context.Context, t *trial) error {
	b := t.runningPod(ctx)
	a := must(b.start(ctx, "app", "exit", "0"))
	must(a.ended(ctx))
	c := a.call(abi.Enter)
	c.Request.Exec, c.Request.Cgroup = "exec", a.request.Cgroup
	c.Process = must(read(&specs.Process{Args: []string{b.t.values.inRoot(), "exit", "0"}, Cwd: "/"}))
	s := must(newStreams(false))
	t.later(func(context.Context) error { return s.Close() })
	defer t.children.Expect()()
	p, err := b.stage1.Enter(ctx, c, s.Files())
	if err == nil {
		b.watch(p, "app", "exec")
	}
	return codeOf("enter", err, abi.ExitNotFound, abi.ExitFailedPrecondition)
}

// terminalChecks check terminals.
func terminalChecks() []Check {
	asks := func(s *specs.Spec) {
		s.Process.Terminal = true
		s.Process.ConsoleSize = &specs.Box{Height: 24, Width: 100}
	}
	check := demanded(LevelExec, asks)
	return []Check{
		check("terminal/app", "5 app/add",
			"an app with a terminal has it as 0, 1 and 2 and as its controlling terminal, in the size that the spec has", func(ctx context.Context, t *trial) error {
				a := must(t.wholePod().start(ctx, asks, "inspect"))
				return onTerminal(ctx, a.streams)
			}),
		check("terminal/exec", "5 enter", "so has an exec, in an app without one", func(ctx context.Context, t *trial) error {
			a := must(t.wholePod().waiting(ctx, nil))
			s := must(a.exec(ctx, "exec", func(p *specs.Process) { asks(&specs.Spec{Process: p}) }, "inspect"))
			return onTerminal(ctx, s.streams)
		}, abi.Enter),
		check("terminal/resize", "5 app/add", "the program is told when the size of its terminal changes", func(ctx context.Context, t *trial) error {
			a := must(t.wholePod().start(ctx, asks, "resized"))
			must(a.streams.surroundings(ctx, 0))
			try(a.w.Resize(a.id, "", pod.Size{Width: 61, Height: 62}))
			if got := must(a.streams.surroundings(ctx, 1)); got.Cols != 61 || got.Rows != 62 {
				return fmt.Errorf("the size is %d columns and %d rows, want 61 and 62", got.Cols, got.Rows)
			}
			return nil
		}),
		check("terminal/input", "5 app/add", "what is typed reaches the program, and ^C interrupts it", func(ctx context.Context, t *trial) error {
			a := must(t.wholePod().waiting(ctx, asks))
			try(a.streams.write("\x03"))
			return a.ends(ctx, "", signalled+uint32(syscall.SIGINT))
		}),
	}
}

func onTerminal(ctx context.Context, s *streams) error {
	switch got := must(s.surroundings(ctx, 0)); {
	case !slices.Equal(got.Terminals, []int{0, 1, 2}):
		return fmt.Errorf("of its descriptors only %v are terminals", got.Terminals)
	case !got.Controlling:
		return errors.New("the terminal is not its controlling terminal")
	case got.Cols != 100 || got.Rows != 24:
		return fmt.Errorf("the size is %d columns and %d rows, want 100 and 24", got.Cols, got.Rows)
	}
	return nil
}
