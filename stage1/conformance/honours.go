package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// honoured is a part of the specification that a stage1 may declare, with questions that
// show its effect. It becomes a check for apps and a check for execs.
type honoured struct {
	name     string
	sentence string // the statement about a program that is true if the checks pass
	// fields are the fields of config.json whose values have a visible effect.
	fields []string
	ask    func(*specs.Spec)
	// with replaces values of ask by those of a trial. It may be nil.
	with  func(*trial, *specs.Spec) error
	facts []fact
	// about is what several parts have in common, so that a program can ask for one of them only.
	about string
	// refused is set if the kernel lacks the feature completely, so that the app or exec
	// must fail.
	refused bool
	// only restricts the part to apps, or to execs.
	only kind
	// missing returns what the machine lacks for the check, or "".
	missing func() string
}

type kind string

// The kinds of programs.
const (
	anyProgram kind = ""
	appOnly    kind = "app"
	execOnly   kind = "exec"
)

// fact is what a program should see.
type fact struct {
	question string
	holds    func(answer string) bool
	want     string
}

func is(question, want string) fact {
	return fact{question, func(answer string) bool { return answer == want }, want}
}

// has returns the fact that the answer contains these words.
func has(question, words string) fact {
	return fact{question, func(answer string) bool {
		for w := range strings.FieldsSeq(words) {
			if !slices.Contains(strings.Fields(answer), w) {
				return false
			}
		}
		return true
	}, "the words " + words}
}

// lacks returns the fact that the answer does not contain a word.
func lacks(question, word string) fact {
	return fact{question, func(answer string) bool { return !slices.Contains(strings.Fields(answer), word) }, "it without the word " + word}
}

// ownNamespace returns the fact that the program's namespace is not the kit's.
func ownNamespace(name string) fact {
	host, _ := os.Readlink("/proc/self/ns/" + name)
	return fact{"namespace " + name, func(answer string) bool { return strings.HasPrefix(answer, name+":") && answer != host }, "another than the host's"}
}

// honouredParts returns all parts.
func honouredParts(v *values) []honoured {
	return slices.Concat(processFields(v), rootFields(v), kernelFields(v))
}

// part returns a part, which asks for the values of the kit's seed.
func (k *Kit) part(name string) *honoured {
	all := honouredParts(k.values)
	return &all[slices.IndexFunc(all, func(h honoured) bool { return h.name == name })]
}

// honoursChecks check the fields that the features document declares.
func honoursChecks() []Check {
	var all []Check
	for _, h := range honouredParts(draw(0)) {
		c := Check{asks: h.ask, honest: true, Fields: h.fields, missing: h.missing}
		if h.only != execOnly {
			app := c
			app.ID, app.Level, app.Section, app.Sentence = "honours/"+h.name, LevelRun, "9", "an app: "+h.sentence
			app.run = func(ctx context.Context, t *trial) error { return t.honoursInApp(ctx, t.part(h.name)) }
			all = append(all, app)
		}
		if h.only != appOnly {
			exec := c
			exec.ID, exec.Level, exec.Section, exec.Sentence = "exec-honours/"+h.name, LevelExec, "9", "an exec: "+h.sentence
			exec.needs = []abi.Entrypoint{abi.Enter}
			exec.run = func(ctx context.Context, t *trial) error { return t.honoursInExec(ctx, t.part(h.name)) }
			all = append(all, exec)
		}
	}
	return all
}

// observed adds a procfs to a spec, because many answers are read from it.
func (t *trial) observed(s *specs.Spec) {
	if proc := (specs.Mount{Destination: "/proc", Type: "proc", Source: "proc"}); !t.isolates {
		if t.honours(&specs.Spec{Mounts: []specs.Mount{proc}}) {
			s.Mounts = append(s.Mounts, proc)
		}
	}
}

func (h *honoured) verb() []string {
	verb := []string{"observe"}
	for _, f := range h.facts {
		verb = append(verb, f.question)
	}
	return verb
}

// asked makes the spec of an app ask for the part.
func (t *trial) asked(h *honoured, s *specs.Spec) {
	t.observed(s)
	h.ask(s)
	if h.with != nil {
		try(h.with(t, s))
	}
}

func (t *trial) honoursInApp(ctx context.Context, h *honoured) error {
	a, err := t.wholePod().start(ctx, func(s *specs.Spec) { t.asked(h, s) }, h.verb()...)
	if done, err := h.begun(err); done {
		return err
	}
	return h.seen(ctx, a.streams)
}

// honoursInExec asks for the process's fields for an exec, and for all other fields for its
// app.
func (t *trial) honoursInExec(ctx context.Context, h *honoured) error {
	asked := t.plainSpec()
	h.ask(asked)
	a, err := t.wholePod().waiting(ctx, func(s *specs.Spec) {
		own := *s.Process // a copy, because ask changes the fields of the process in place
		t.asked(h, s)
		s.Process = &own
	})
	if err != nil {
		_, err = h.begun(err)
		return err
	}
	e, err := a.exec(ctx, "exec", func(p *specs.Process) {
		asked.Process.Args, asked.Process.Cwd, asked.Process.Env = p.Args, p.Cwd, p.Env
		*p = *asked.Process
	}, h.verb()...)
	if done, err := h.begun(err); done {
		return err
	}
	return h.seen(ctx, e.streams)
}

// begun judges the start of a program. done is set if the check ends with that.
func (h *honoured) begun(err error) (done bool, _ error) {
	switch {
	case errdefs.IsNotImplemented(err):
		return true, &cannotError{err}
	case err != nil && !h.refused:
		return true, fmt.Errorf("the program asks for %s: %w", strings.Join(h.fields, ", "), err)
	case err == nil && h.refused:
		return true, fmt.Errorf("%s has a value that cannot be honoured, and the program has been started", h.fields[0])
	}
	return err != nil, nil
}

// seen compares the program's answers with the facts.
func (h *honoured) seen(ctx context.Context, s *streams) error {
	answers, err := s.answers(ctx)
	if err != nil {
		return err
	}
	return h.judge(answers)
}

// judge compares the answers of a program with the facts.
func (h *honoured) judge(answers map[string]string) (err error) {
	for _, f := range h.facts {
		if got := answers[f.question]; !f.holds(got) {
			err = errors.Join(err, fmt.Errorf("%s is ignored: %s is %q, want %s", strings.Join(h.fields, ", "), f.question, got, f.want))
		}
	}
	return err
}
