package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
)

// serveChecks check a stage1 that answers calls on a socket.
func serveChecks() []Check {
	check := func(id, sentence string, run func(context.Context, *barePod) error) Check {
		c := inPod("serve/"+id, "11", sentence, run)
		c.serves = true
		return c
	}
	same := check("same", "a call has the same outcome on the socket as when its entrypoint is executed", checkSameAnswers)
	same.needs = []abi.Entrypoint{abi.AppSignal, abi.AppStop, abi.Enter}
	return []Check{
		check("socket", "the socket is there when run is ready, and is root's alone", checkSocket),
		same,
	}
}

func checkSocket(_ context.Context, b *barePod) error {
	path := filepath.Join(b.dir, stage1.RootfsDir, b.t.image.Socket())
	st := must(os.Lstat(path))
	switch {
	case st.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s is no socket, but %s", b.t.image.Socket(), st.Mode())
	case st.Mode().Perm() != 0o600:
		return fmt.Errorf("%s has mode %#o, want 0600", b.t.image.Socket(), st.Mode().Perm())
	}
	return nil
}

// question makes calls for the app of a name, and returns the error of the last
// call.
type question struct {
	what string
	ask  func(context.Context, *barePod, string) error
}

// questions cover each entrypoint and each exit code of the ABI.
func questions() []question {
	call := func(what string, e abi.Entrypoint, verb ...string) question {
		return question{what, func(ctx context.Context, b *barePod, name string) error {
			if len(verb) > 0 {
				must(b.start(ctx, name, verb...))
			}
			c := b.call(e, name)
			c.Request.Container, c.Request.Bundle, c.Request.Signal = "Verify_"+name, b.t.dir, 9
			return b.stage1.Invoke(ctx, c)
		}}
	}
	return []question{
		call("app/start of an unknown app", abi.AppStart),
		call("app/signal to an unknown app", abi.AppSignal),
		call("app/stop of an unknown app", abi.AppStop),
		call("app/rm of an unknown app", abi.AppRm),
		call("app/start of a running app", abi.AppStart, "wait"),
		call("app/signal to a running app", abi.AppSignal, "wait"),
		call("app/stop of a running app", abi.AppStop, "wait"),
		call("app/rm of a running app", abi.AppRm, "wait"),
		{"app/add of a program that is missing", func(ctx context.Context, b *barePod, name string) error {
			_, err := b.add(ctx, name, func(s *specs.Spec) { s.Process.Args = []string{"/bin/absent"} })
			return err
		}},
		{"enter into an unknown app", func(ctx context.Context, b *barePod, name string) error {
			return enters(ctx, b, name, b.t.values.inRoot())
		}},
		{"enter with a program that is missing", func(ctx context.Context, b *barePod, name string) error {
			must(b.start(ctx, name, "wait"))
			return enters(ctx, b, name, "/bin/absent")
		}},
	}
}

// enters executes a program in an app.
func enters(ctx context.Context, b *barePod, name, program string) error {
	c := b.call(abi.Enter, name)
	c.Request.Container, c.Request.Bundle, c.Request.Exec = "Verify_"+name, b.t.dir, "exec"
	c.Process = must(read(&specs.Process{Args: []string{program}, Cwd: "/"}))
	_, err := b.stage1.Enter(ctx, c, [3]*os.File{})
	return err
}

// checkSameAnswers makes each call on the socket and as an execution, and compares
// the answers.
func checkSameAnswers(ctx context.Context, b *barePod) error {
	asked, executed := b.stage1, must(b.t.newStage1())
	s, ok := executed.(*stage1.Stage1)
	if !ok {
		return errors.New("stage 0 asks this stage1 nothing on its socket")
	}
	s.Execute = true
	defer func() { b.stage1 = asked }()
	for n, q := range questions() {
		b.stage1 = asked
		onSocket := answerOf(ctx, q, b, fmt.Sprintf("served-%d", n))
		b.stage1 = executed
		if execution := answerOf(ctx, q, b, fmt.Sprintf("execed-%d", n)); execution != onSocket {
			return fmt.Errorf("%s: on the socket it ends with %s, and when it is executed with %s", q.what, onSocket, execution)
		}
	}
	return nil
}

// answerOf describes how a call has ended. The description does not contain the name
// of the app.
func answerOf(ctx context.Context, q question, b *barePod, name string) string {
	err := q.ask(ctx, b, name)
	var failed *stage1.EntrypointError
	switch {
	case err == nil:
		return "exit code 0"
	case errors.As(err, &failed):
		return fmt.Sprintf("exit code %d: %s", failed.Code, strings.ReplaceAll(failed.Text, name, "APP"))
	}
	return err.Error()
}
