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
)

// hookChecks check hooks, except poststop hooks, which stage 0 runs.
func hookChecks() []Check {
	order := inPod("hooks/order", "5", "hooks run in the order of the spec, with the state of the app as their input", checkHooks)
	order.asks = func(s *specs.Spec) {
		s.Hooks = prestart(loggingHook("", ""))
		s.Hooks.CreateRuntime = loggingHook("", "")
	}
	order.Fields = hookFields("prestart", "createRuntime")
	container := inPod("hooks/create-container", "5", "a createContainer hook has run when app/add is ready", func(ctx context.Context, b *barePod) error {
		log := filepath.Join(b.t.dir, "hooks")
		must(b.add(ctx, "app", func(s *specs.Spec) { s.Hooks = &specs.Hooks{CreateContainer: loggingHook("createContainer", log)} }, "wait"))
		return ranHooks(log, "createContainer")
	})
	container.asks = func(s *specs.Spec) { s.Hooks = &specs.Hooks{CreateContainer: loggingHook("", "")} }
	container.Fields = hookFields("createContainer")
	start := inPod("hooks/start-container", "5", "a startContainer hook has run in the root of the app when app/start returns", checkStartHook)
	start.asks = func(s *specs.Spec) { s.Hooks = &specs.Hooks{StartContainer: draw(0).touchingHook()} }
	start.Fields = hookFields("startContainer")
	post := inPod("hooks/poststart", "5", "a poststart hook has run when app/start returns, and not before", checkPoststart)
	post.asks = func(s *specs.Spec) { s.Hooks = &specs.Hooks{Poststart: loggingHook("", "")} }
	post.Fields = hookFields("poststart")
	return append([]Check{order, container, start, post}, hookTimeouts()...)
}

// hookTimeouts check that a hook of each kind ends at its timeout.
func hookTimeouts() []Check {
	host := slowHook("/bin/sh", "sh", "-c", "exec sleep 8")
	added := func(ctx context.Context, b *barePod, asks func(*specs.Spec)) error { return b.refuses(ctx, asks) }
	var all []Check
	for _, k := range []struct {
		kind, id, sentence string
		asks               func(*specs.Spec, *values)
		run                func(context.Context, *barePod, func(*specs.Spec)) error
	}{
		{"createRuntime", "hooks/timeout", "a hook that takes longer than its timeout fails app/add",
			func(s *specs.Spec, _ *values) { s.Hooks = &specs.Hooks{CreateRuntime: host} }, added},
		{"prestart", "hooks/timeout-prestart", "a prestart hook that takes longer than its timeout fails app/add",
			func(s *specs.Spec, _ *values) { s.Hooks = prestart(host) }, added},
		{"createContainer", "hooks/timeout-create-container", "a createContainer hook that takes longer than its timeout fails app/add",
			func(s *specs.Spec, _ *values) { s.Hooks = &specs.Hooks{CreateContainer: host} }, added},
		{"startContainer", "hooks/timeout-start-container", "after a startContainer hook that takes longer than its timeout the program does not run",
			func(s *specs.Spec, v *values) {
				s.Hooks = &specs.Hooks{StartContainer: slowHook(v.inRoot(), v.program, "sleep", "8")}
			}, checkNoProgram},
		{"poststart", "hooks/timeout-poststart", "a poststart hook that takes longer than its timeout fails app/start",
			func(s *specs.Spec, _ *values) { s.Hooks = &specs.Hooks{Poststart: host} }, checkNoStart},
	} {
		c := inPod(k.id, "5", k.sentence, func(ctx context.Context, b *barePod) error {
			return k.run(ctx, b, func(s *specs.Spec) { k.asks(s, b.t.values) })
		})
		c.asks, c.Fields = func(s *specs.Spec) { k.asks(s, draw(0)) }, []string{"/hooks/" + k.kind + "/*/timeout"}
		all = append(all, c)
	}
	return all
}

func hookFields(kinds ...string) []string {
	var all []string
	for _, k := range kinds {
		all = append(all, "/hooks/"+k+"/*/path", "/hooks/"+k+"/*/args", "/hooks/"+k+"/*/env")
	}
	return all
}

// loggingHook returns a hook that appends its name, which is in its environment, and the
// state that it reads to a log of the host.
func loggingHook(name, log string) []specs.Hook {
	return []specs.Hook{{
		Path: "/bin/sh", Args: []string{"sh", "-c", `printf '%s ' "$VERIFY" >>"$1"; cat >>"$1"; echo >>"$1"`, "hook", log},
		Env: []string{"PATH=/usr/bin:/bin", "VERIFY=" + name},
	}}
}

// slowHook returns a hook that runs much longer than its timeout.
func slowHook(path string, args ...string) []specs.Hook {
	return []specs.Hook{{Path: path, Args: args, Env: []string{"PATH=/usr/bin:/bin"}, Timeout: new(1)}}
}

// prestart returns hooks of the kind that createRuntime has replaced.
func prestart(hooks []specs.Hook) *specs.Hooks {
	h := &specs.Hooks{}
	h.Prestart = hooks
	return h
}

// touched is the name of the file that touchingHook makes.
const touched = "touched-by-hook"

// touchingHook returns a hook that makes a file in the root of the app, by the kit's
// program.
func (v *values) touchingHook() []specs.Hook {
	return []specs.Hook{{Path: v.inRoot(), Args: []string{v.program, "touch"}, Env: []string{touchVariable + "=" + v.data + "/" + touched}}}
}

// ranHooks returns an error unless the log has these hooks in this order.
func ranHooks(log string, want ...string) error {
	text, err := os.ReadFile(log)
	if err != nil {
		return fmt.Errorf("no hook has run: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i, name := range want {
		if len(lines) <= i || !strings.HasPrefix(lines[i], name+" ") {
			return fmt.Errorf("the hooks that have run are %q, want %s", text, strings.Join(want, " and "))
		}
	}
	return nil
}

func checkHooks(ctx context.Context, b *barePod) error {
	log := filepath.Join(b.t.dir, "hooks")
	a := must(b.add(ctx, "app", func(s *specs.Spec) {
		s.Hooks = prestart(loggingHook("prestart", log))
		s.Hooks.CreateRuntime = loggingHook("createRuntime", log)
	}, "wait"))
	try(ranHooks(log, "prestart", "createRuntime"))
	lines := strings.Split(string(must(os.ReadFile(log))), "\n")
	for _, line := range lines[:2] {
		for _, fact := range []string{`"` + a.request.Container + `"`, fmt.Sprint(a.PID), a.request.Bundle} {
			if !strings.Contains(line, fact) {
				return fmt.Errorf("the state that a hook has read is without %s: %s", fact, line)
			}
		}
	}
	return nil
}

func checkStartHook(ctx context.Context, b *barePod) error {
	path := filepath.Join(b.t.rootfs, b.t.values.data, touched)
	b.t.later(func(context.Context) error { _ = os.Remove(path); return nil })
	a := must(b.add(ctx, "app", func(s *specs.Spec) { s.Hooks = &specs.Hooks{StartContainer: b.t.values.touchingHook()} }, "wait"))
	try(a.invoke(ctx, abi.AppStart))
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("no startContainer hook has run in the root: %w", err)
	}
	return nil
}

func checkPoststart(ctx context.Context, b *barePod) error {
	log := filepath.Join(b.t.dir, "hooks")
	a := must(b.add(ctx, "app", func(s *specs.Spec) { s.Hooks = &specs.Hooks{Poststart: loggingHook("poststart", log)} }, "wait"))
	if ranHooks(log, "poststart") == nil {
		return errors.New("a poststart hook has run before app/start")
	}
	try(a.invoke(ctx, abi.AppStart))
	return ranHooks(log, "poststart")
}

// checkNoProgram checks that an app ends before it runs its program. OCI runtimes report the
// start before they run the hook.
func checkNoProgram(ctx context.Context, b *barePod, asks func(*specs.Spec)) error {
	a := must(b.add(ctx, "app", asks, "wait"))
	if err := a.invoke(ctx, abi.AppStart); err != nil {
		return nil
	}
	text, err := a.streams.out.wait(ctx, func(text string, ended bool) bool { return ended || text != "" })
	if err == nil && text != "" {
		err = fmt.Errorf("the program has written %q", text)
	}
	return err
}

func checkNoStart(ctx context.Context, b *barePod, asks func(*specs.Spec)) error {
	a := must(b.add(ctx, "app", asks, "wait"))
	return failsWith("app/start", a.invoke(ctx, abi.AppStart), nil)
}
