package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// situation is a kind of program that a stage1 might start in another way than the first program of
// a pod, which runs as root and without a terminal. Its check asks a few such programs for all
// declared fields.
type situation struct {
	name     string
	sentence string // the statement about a program's fields that is true if the check passes
	kind     kind
	// skips are the names of the parts that such a program cannot ask for.
	skips string
	// asks makes the spec of a program one of the situation. It may be nil.
	asks func(*specs.Spec, *values)
	// mutable and sandbox say which kind of pod the programs need.
	mutable, sandbox bool
	// start starts a program, with a change of its app's spec and, for an exec, of its process.
	start func(context.Context, *trial, func(*specs.Spec), func(*specs.Process), []string) (*streams, error)
}

func onTTY(s *specs.Spec, _ *values) { s.Process.Terminal = true }

func asOtherUser(s *specs.Spec, v *values) {
	s.Process.User.UID, s.Process.User.GID = v.otherUser, v.otherGroup
}

func isolated(s *specs.Spec, _ *values) { isolate(s) }

func situations() []situation {
	const forces = "the fields of the spec are in force "
	return []situation{
		{name: "sandbox", kind: appOnly, sentence: forces + "for an app that joins the namespaces of its pod", mutable: true, sandbox: true,
			asks: isolated, skips: "hostname domainname sysctl network-namespace network-devices", start: startInSandbox},
		{name: "terminal", kind: appOnly, sentence: forces + "for an app with a terminal", asks: onTTY, start: startFirst},
		{name: "user", kind: appOnly, sentence: forces + "for an app of any user", asks: asOtherUser, skips: "capabilities", start: startFirst},
		{name: "second", kind: appOnly, sentence: forces + "for a second app of a pod", mutable: true, start: startSecond},
		{name: "sandbox", kind: execOnly, sentence: forces + "for an exec in an app that joins the namespaces of its pod", mutable: true, sandbox: true,
			asks: isolated, skips: "hostname domainname sysctl network-namespace network-devices", start: enterInSandbox},
		{name: "terminal", kind: execOnly, sentence: forces + "for an exec with a terminal", asks: onTTY, start: enterFirst},
		{name: "user", kind: execOnly, sentence: forces + "for an exec of any user", asks: asOtherUser, skips: "capabilities", start: enterFirst},
		{name: "second", kind: execOnly, sentence: forces + "for a second exec, in an app that has other values", start: enterSecond},
	}
}

// situationChecks check the fields that the features document declares, in each situation.
func situationChecks() []Check {
	var all []Check
	for _, s := range situations() {
		c := Check{ID: "situation/app-" + s.name, Level: LevelRun, Section: "9", Sentence: s.sentence, mutable: s.mutable,
			run: func(ctx context.Context, t *trial) error { return t.honoursIn(ctx, &s) }}
		if s.asks != nil {
			c.asks = func(spec *specs.Spec) { s.asks(spec, draw(0)) }
		}
		if s.kind == execOnly {
			c.ID, c.Level, c.needs = "situation/exec-"+s.name, LevelExec, []abi.Entrypoint{abi.Enter}
		}
		all = append(all, c)
	}
	return all
}

// honoursIn asks programs of a situation for all declared fields, as many at a time as possible. If the
// stage1 refuses the values of some, it asks for each alone.
func (t *trial) honoursIn(ctx context.Context, s *situation) (all error) {
	var refusal error
	seen := false
	left := rounds(t.partsOf(s))
	for len(left) > 0 {
		parts := left[0]
		left = left[1:]
		err := caught(func() error { return t.honoursAll(ctx, s, parts) })
		switch {
		case !errdefs.IsNotImplemented(err):
			seen, all = true, errors.Join(all, err)
		case len(parts) > 1:
			left = slices.AppendSeq(left, slices.Chunk(parts, 1))
		default:
			refusal = err
		}
	}
	if !seen && refusal != nil {
		return &cannotError{refusal}
	}
	return all
}

// partsOf returns the parts of the specification that the image declares, and that a program of the
// situation can show.
func (t *trial) partsOf(s *situation) []honoured {
	return slices.DeleteFunc(honouredParts(t.values), func(h honoured) bool {
		bare := Check{asks: h.ask}
		asked := t.plainSpec()
		h.ask(asked)
		return h.refused || h.only != anyProgram && h.only != s.kind || slices.Contains(strings.Fields(s.skips), h.name) ||
			t.declares(asked) != nil || !t.honours(bare.bare()) || h.missing != nil && h.missing() != ""
	})
}

// rounds distributes parts over as few programs as possible. Parts that are about the same thing
// exclude each other.
func rounds(parts []honoured) [][]honoured {
	var all [][]honoured
	for _, h := range parts {
		i := slices.IndexFunc(all, func(r []honoured) bool {
			return !slices.ContainsFunc(r, func(o honoured) bool { return h.about != "" && o.about == h.about })
		})
		if i < 0 {
			i, all = len(all), append(all, nil)
		}
		all[i] = append(all[i], h)
	}
	return all
}

// honoursAll asks one program of a situation for several parts.
func (t *trial) honoursAll(ctx context.Context, s *situation, parts []honoured) error {
	asked := t.plainSpec()
	verb, names := []string{"observe"}, []string{}
	for _, h := range parts {
		h.ask(asked)
		verb, names = append(verb, h.verb()[1:]...), append(names, h.name)
	}
	if s.asks != nil {
		s.asks(asked, t.values)
	}
	app := func(spec *specs.Spec) {
		own := *spec.Process
		for _, h := range parts {
			t.asked(&h, spec)
		}
		switch {
		case s.kind == execOnly:
			spec.Process = &own
		case s.asks != nil && !s.sandbox:
			s.asks(spec, t.values)
		}
	}
	process := func(p *specs.Process) {
		asked.Process.Args, asked.Process.Cwd, asked.Process.Env = p.Args, p.Cwd, p.Env
		*p = *asked.Process
	}
	out, err := s.start(ctx, t, app, process, verb)
	if err != nil {
		return fmt.Errorf("the program asks for %s: %w", strings.Join(names, ", "), err)
	}
	answers, err := out.answers(ctx)
	for _, h := range parts {
		if err == nil || answers != nil {
			err = errors.Join(err, h.judge(answers))
		}
	}
	return err
}

func startFirst(ctx context.Context, t *trial, app func(*specs.Spec), _ func(*specs.Process), verb []string) (*streams, error) {
	return t.wholePod().output(ctx, app, verb)
}

func startSecond(ctx context.Context, t *trial, app func(*specs.Spec), _ func(*specs.Process), verb []string) (*streams, error) {
	w := t.wholePod()
	must(w.waiting(ctx, nil))
	return w.output(ctx, app, verb)
}

func startInSandbox(ctx context.Context, t *trial, app func(*specs.Spec), _ func(*specs.Process), verb []string) (*streams, error) {
	b := must(t.sandbox(ctx))
	return b.output(ctx, func(s *specs.Spec) { app(s); b.join(s) }, verb)
}

// output starts an app and returns its streams.
func (w *wholePod) output(ctx context.Context, change func(*specs.Spec), verb []string) (*streams, error) {
	a, err := w.start(ctx, change, verb...)
	if err != nil {
		return nil, err
	}
	return a.streams, nil
}

func enterFirst(ctx context.Context, t *trial, app func(*specs.Spec), process func(*specs.Process), verb []string) (*streams, error) {
	return t.wholePod().entered(ctx, app, process, verb, 1)
}

func enterSecond(ctx context.Context, t *trial, app func(*specs.Spec), process func(*specs.Process), verb []string) (*streams, error) {
	return t.wholePod().entered(ctx, func(s *specs.Spec) { app(s); t.otherwise(s) }, process, verb, 2)
}

func enterInSandbox(ctx context.Context, t *trial, app func(*specs.Spec), process func(*specs.Process), verb []string) (*streams, error) {
	b := must(t.sandbox(ctx))
	return b.entered(ctx, func(s *specs.Spec) { app(s); b.join(s) }, process, verb, 1)
}

// entered starts an app and the n-th of its execs, and returns the streams of the exec.
func (w *wholePod) entered(ctx context.Context, app func(*specs.Spec), process func(*specs.Process), verb []string, n int) (*streams, error) {
	a, err := w.waiting(ctx, app)
	if err != nil {
		return nil, err
	}
	if n > 1 {
		first := must(a.exec(ctx, "first", nil, "wait"))
		try(first.out.awaitWord(ctx, "waiting"))
	}
	e, err := a.exec(ctx, "exec", process, verb...)
	if err != nil {
		return nil, err
	}
	return e.streams, nil
}

// otherwise makes an app ask for values of process fields that its exec does not ask for.
func (t *trial) otherwise(s *specs.Spec) {
	for _, change := range []func(*specs.Process){
		func(p *specs.Process) { p.OOMScoreAdj = new(t.values.appScore) },
		func(p *specs.Process) { p.User.AdditionalGids = []uint32{t.values.appGroup} },
		func(p *specs.Process) { p.User.Umask = new(t.values.appMask) },
		func(p *specs.Process) {
			p.Rlimits = []specs.POSIXRlimit{{Type: t.values.rlimits[0].kind, Hard: t.values.appLimit, Soft: t.values.appLimit}}
		},
	} {
		alone := &specs.Process{}
		if change(alone); t.honours(&specs.Spec{Process: alone}) {
			change(s.Process)
		}
	}
}
