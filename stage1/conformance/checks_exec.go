package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// enterChecks are about further processes in an app.
func enterChecks() []Check {
	check := func(id, sentence string, run func(context.Context, *wholeApp) error) Check {
		return Check{
			ID: "enter/" + id, Level: LevelExec, Section: "5 enter", Sentence: sentence, needs: []abi.Entrypoint{abi.Enter}, demanded: true,
			run: func(ctx context.Context, t *trial) error {
				a, err := t.wholePod().waiting(ctx, nil)
				if err != nil {
					return err
				}
				return run(ctx, a)
			},
		}
	}
	fails := func(id, sentence string, path string, words ...string) Check {
		return check(id, sentence, func(ctx context.Context, a *wholeApp) error {
			_, _, err := a.exec(ctx, "exec", func(p *specs.Process) { p.Args = []string{path} })
			if err == nil {
				return errors.New("enter has succeeded")
			}
			if len(words) > 0 && !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(err.Error(), w) }) {
				return fmt.Errorf("it fails in other words than %q, which clients look for: %w", words, err)
			}
			return nil
		})
	}
	return []Check{
		check("program", "an exec runs with the arguments, the environment, the working directory and the user of its process", checkEntered),
		check("inside", "an exec is in the namespaces and the cgroup of its app", checkInside),
		check("streams", "an exec has streams of its own, with nothing of the stage1's", func(ctx context.Context, a *wholeApp) error {
			s, _, err := a.exec(ctx, "exec", nil, "say", "out", "err")
			if err != nil {
				return err
			}
			return s.holds(ctx, "out", "err")
		}),
		check("descriptors", "an exec has the descriptors 0, 1 and 2, and no other", func(ctx context.Context, a *wholeApp) error {
			s, _, err := a.exec(ctx, "exec", nil, "inspect")
			if err != nil {
				return err
			}
			return onlyStdio(ctx, s, false)
		}),
		check("code", "the exit code of an exec is its program's", func(ctx context.Context, a *wholeApp) error {
			if _, _, err := a.exec(ctx, "exec", nil, "exit", "74"); err != nil {
				return err
			}
			return a.ends(ctx, "exec", 74)
		}),
		check("signal", "a signal to an exec reaches it, and not the app", checkExecSignal),
		fails("missing", "a program that is missing fails enter, in words that clients look for", "/bin/absent",
			"no such file or directory", "executable file not found in $PATH"),
		fails("not-executable", "a file without the right to be executed fails enter as permission denied", "/bin/not-executable", "permission denied"),
		fails("no-format", "enter reports ready once the program has been executed: a file that the kernel does not execute fails it", "/bin/no-format"),
		check("several", "several execs run at the same time", checkSeveral),
		{
			ID: "enter/ended", Level: LevelExec, Section: "2", mutable: true, needs: []abi.Entrypoint{abi.Enter}, demanded: true,
			Sentence: "enter into an app that has ended returns 5 or 6",
			run:      checkEnterEnded,
		},
	}
}

func checkEntered(ctx context.Context, a *wholeApp) error {
	want := surroundings{Args: []string{"inspect", "two words"}, Cwd: "/tmp"}
	s, _, err := a.exec(ctx, "exec", func(p *specs.Process) {
		p.Cwd, p.Env = want.Cwd, append(p.Env, "VERIFY=exec")
		p.User = specs.User{UID: 4711, GID: 4712}
		if a.w.t.declares(&specs.Spec{Process: p}) != nil {
			p.User = specs.User{}
		}
		want.UID, want.GID = int(p.User.UID), int(p.User.GID)
	}, want.Args...)
	if err != nil {
		return err
	}
	return hasFound(ctx, s, want, "VERIFY=exec")
}

func checkInside(ctx context.Context, a *wholeApp) error {
	s, pid, err := a.exec(ctx, "exec", nil, "wait")
	if err != nil {
		return err
	}
	if err := s.out.awaitWord(ctx, "waiting"); err != nil {
		return err
	}
	theirs, err := namespacesOf(a.pid)
	if err != nil {
		return err
	}
	its, err := namespacesOf(pid)
	if err != nil {
		return err
	}
	for ns := range theirs {
		if its[ns] != theirs[ns] {
			return fmt.Errorf("the %s namespace of the exec is %s, and that of the app %s", ns, its[ns], theirs[ns])
		}
	}
	infos, err := a.w.Pids(ctx, a.id)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(infos, func(i pod.ProcessInfo) bool { return i.PID == pid && i.Exec == "exec" }) {
		return fmt.Errorf("process %d of the exec is not in the cgroup of its app, which has %v", pid, infos)
	}
	return nil
}

func checkExecSignal(ctx context.Context, a *wholeApp) error {
	s, _, err := a.exec(ctx, "exec", nil, "wait")
	if err != nil {
		return err
	}
	if err := s.out.awaitWord(ctx, "waiting"); err != nil {
		return err
	}
	if err := a.w.Kill(ctx, a.id, "exec", int(syscall.SIGTERM), false); err != nil {
		return err
	}
	if err := a.ends(ctx, "exec", signalled+uint32(syscall.SIGTERM)); err != nil {
		return err
	}
	if st, err := a.w.Status(a.id, ""); err != nil || st.State != pod.Running {
		return fmt.Errorf("the app is %s: %w", st.State, err)
	}
	return nil
}

func checkSeveral(ctx context.Context, a *wholeApp) error {
	const several = 4
	failed := make(chan error, several)
	for i := range several {
		go func() {
			id := pod.ExecID(fmt.Sprintf("exec-%d", i))
			_, _, err := a.exec(ctx, id, nil, "exit", fmt.Sprint(20+i))
			if err == nil {
				err = a.ends(ctx, id, uint32(20+i))
			}
			failed <- err
		}()
	}
	var err error
	for range several {
		err = errors.Join(err, <-failed)
	}
	return err
}

func checkEnterEnded(ctx context.Context, t *trial) error {
	b, err := t.runningPod(ctx)
	if err != nil {
		return err
	}
	a, err := b.start(ctx, "app", "exit", "0")
	if err != nil {
		return err
	}
	if _, err := a.ended(ctx); err != nil {
		return err
	}
	c := a.call(abi.Enter)
	c.Request.Exec, c.Request.Cgroup = "exec", a.request.Cgroup
	if c.Process, err = read(&specs.Process{Args: []string{inRoot, "exit", "0"}, Cwd: "/"}); err != nil {
		return err
	}
	s, err := newStreams(false)
	if err != nil {
		return err
	}
	t.later(func(context.Context) error { return s.Close() })
	defer t.children.Expect()()
	p, err := b.stage1.Enter(ctx, c, s.Files())
	if err == nil {
		b.watch(p, "app", "exec")
	}
	return codeOf("enter", err, abi.ExitNotFound, abi.ExitFailedPrecondition)
}

// terminalChecks are about terminals.
func terminalChecks() []Check {
	asks := func(s *specs.Spec) {
		s.Process.Terminal = true
		s.Process.ConsoleSize = &specs.Box{Height: 24, Width: 100}
	}
	return []Check{
		{
			ID: "terminal/app", Level: LevelExec, Section: "5 app/add", asks: asks, demanded: true,
			Sentence: "an app with a terminal has it as 0, 1 and 2 and as its controlling terminal, in the size that the spec has",
			run: func(ctx context.Context, t *trial) error {
				a, err := t.wholePod().start(ctx, asks, "inspect")
				if err != nil {
					return err
				}
				return onTerminal(ctx, a.streams)
			},
		},
		{
			ID: "terminal/exec", Level: LevelExec, Section: "5 enter", asks: asks, needs: []abi.Entrypoint{abi.Enter}, demanded: true,
			Sentence: "so has an exec, in an app without one",
			run: func(ctx context.Context, t *trial) error {
				a, err := t.wholePod().waiting(ctx, nil)
				if err != nil {
					return err
				}
				s, _, err := a.exec(ctx, "exec", func(p *specs.Process) {
					asks(&specs.Spec{Process: p})
				}, "inspect")
				if err != nil {
					return err
				}
				return onTerminal(ctx, s)
			},
		},
		{
			ID: "terminal/resize", Level: LevelExec, Section: "5 app/add", asks: asks, demanded: true,
			Sentence: "the program is told when the size of its terminal changes",
			run: func(ctx context.Context, t *trial) error {
				a, err := t.wholePod().start(ctx, asks, "resized")
				if err != nil {
					return err
				}
				if _, err := a.streams.surroundings(ctx, 0); err != nil {
					return err
				}
				if err := a.w.Resize(a.id, "", pod.Size{Width: 61, Height: 62}); err != nil {
					return err
				}
				got, err := a.streams.surroundings(ctx, 1)
				if err == nil && (got.Cols != 61 || got.Rows != 62) {
					err = fmt.Errorf("the size is %d columns and %d rows, want 61 and 62", got.Cols, got.Rows)
				}
				return err
			},
		},
		{
			ID: "terminal/input", Level: LevelExec, Section: "5 app/add", asks: asks, demanded: true,
			Sentence: "what is typed reaches the program, and ^C interrupts it",
			run: func(ctx context.Context, t *trial) error {
				a, err := t.wholePod().waiting(ctx, asks)
				if err != nil {
					return err
				}
				if err := a.streams.write("\x03"); err != nil {
					return err
				}
				return a.ends(ctx, "", signalled+uint32(syscall.SIGINT))
			},
		},
	}
}

func onTerminal(ctx context.Context, s *streams) error {
	got, err := s.surroundings(ctx, 0)
	switch {
	case err != nil:
		return err
	case !slices.Equal(got.Terminals, []int{0, 1, 2}):
		return fmt.Errorf("of its descriptors only %v are terminals", got.Terminals)
	case !got.Controlling:
		return errors.New("the terminal is not its controlling terminal")
	case got.Cols != 100 || got.Rows != 24:
		return fmt.Errorf("the size is %d columns and %d rows, want 100 and 24", got.Cols, got.Rows)
	}
	return nil
}
