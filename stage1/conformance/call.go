package conformance

import (
	"context"
	"encoding/json"
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
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
)

// ByHand is a call that a person makes.
type ByHand struct {
	Entrypoint abi.Entrypoint
	// Spec is the config.json of the app, or nil for an app of the kit. A relative path of
	// its root is relative to Dir.
	Spec *specs.Spec
	Dir  string
	// Command is what enter executes. If it is empty, enter executes a program of the kit,
	// which the root of the kit's apps has.
	Command []string
	Signal  int             // of app/signal
	Limits  json.RawMessage // of app/update: an OCI linux.resources object
	Execute bool            // also where the image answers on a socket
	// Show, if set, is called before the call is made.
	Show func(*Made)
}

// Made is a call that was made, and its answer.
type Made struct {
	Entrypoint abi.Entrypoint  `json:"entrypoint"`
	Before     []string        `json:"before"`         // calls that were made to make this one legal
	Served     bool            `json:"served"`         // it is made on the image's socket, and not by execution
	Argv       []string        `json:"argv,omitempty"` // of an execution
	Env        []string        `json:"env,omitempty"`  // of an execution
	Request    json.RawMessage `json:"request"`
	Process    json.RawMessage `json:"process,omitempty"` // the document of RKT_PROCESS
	// The rest is the answer.
	Code    int             `json:"code"` // -1 if stage 0 has ended the call, or it never ran
	Millis  float64         `json:"ms"`
	Words   string          `json:"words,omitempty"`  // from RKT_ERROR_FD
	Ready   string          `json:"ready,omitempty"`  // what the ready line has said
	Answer  json.RawMessage `json:"answer,omitempty"` // of app/stats and features/probe
	Exit    *int            `json:"exit,omitempty"`   // of the program of enter, if it has ended
	Output  string          `json:"output,omitempty"` // of that program, or of the app
	Meaning string          `json:"meaning"`          // of the answer, in the words of the ABI
	Left    string          `json:"left,omitempty"`   // what the stage1 has not removed
}

// Callable returns the entrypoints that can be called by hand.
func Callable() []abi.Entrypoint {
	return slices.DeleteFunc(abi.Entrypoints(), func(e abi.Entrypoint) bool { return e == abi.Attach })
}

// before lists, for each entrypoint, the calls that make it legal, in their order.
func before(e abi.Entrypoint) []abi.Entrypoint {
	switch e {
	case abi.Run, abi.FeaturesProbe:
		return nil
	case abi.Stop, abi.AppAdd:
		return []abi.Entrypoint{abi.Run}
	case abi.GC:
		return []abi.Entrypoint{abi.Run, abi.Stop}
	case abi.AppStart:
		return []abi.Entrypoint{abi.Run, abi.AppAdd}
	case abi.AppRm:
		return []abi.Entrypoint{abi.Run, abi.AppAdd, abi.AppStop}
	case abi.AppResume:
		return []abi.Entrypoint{abi.Run, abi.AppAdd, abi.AppStart, abi.AppPause}
	}
	return []abi.Entrypoint{abi.Run, abi.AppAdd, abi.AppStart}
}

// Call makes one call of an entrypoint in a pod that exists for this call alone. It first
// makes the calls that have to come before it, as stage 0 does. The error is about those, or
// about the kit; the answer of the call itself is in Made.
func (k *Kit) Call(ctx context.Context, h ByHand) (*Made, error) {
	if !k.image.Has(h.Entrypoint) {
		return nil, fmt.Errorf("the stage1 has no %s; it has %s", h.Entrypoint, k.declaredEntrypoints())
	}
	if h.Entrypoint != abi.FeaturesProbe && !k.mutable() {
		return nil, errors.New("its pods have one app, which run executes, and there is no call that could be made by itself: stage1 verify --show shows the calls")
	}
	m := &Made{Entrypoint: h.Entrypoint, Before: []string{}}
	called := false
	_, _, err := k.attempt(ctx, &Check{ID: string(h.Entrypoint), run: func(ctx context.Context, t *trial) error {
		c := &byHand{ByHand: h, t: t, made: m}
		err := c.make(ctx)
		called = err == nil
		return err
	}})
	if !called {
		return nil, err
	}
	if err != nil {
		m.Left = err.Error()
	}
	return m, ctx.Err()
}

// byHand is a ByHand in progress.
type byHand struct {
	ByHand
	t      *trial
	made   *Made
	pod    *barePod
	stage1 *stage1.Stage1
	app    *bareApp
}

// make makes the calls.
func (h *byHand) make(ctx context.Context) error {
	h.pod = h.t.barePod()
	s, ok := h.pod.stage1.(*stage1.Stage1)
	if !ok {
		return errors.New("only images of interface version 7 can be called by hand")
	}
	h.stage1, s.Execute = s, h.Execute
	for _, e := range before(h.Entrypoint) {
		if !s.Has(e) {
			continue // stage 0 does it
		}
		if err := h.call(ctx, e); err != nil {
			return fmt.Errorf("before %s: %w", h.Entrypoint, err)
		}
		h.made.Before = append(h.made.Before, string(e))
	}
	s.Show, h.made.Ready = h.show, ""
	err := h.call(ctx, h.Entrypoint)
	s.Show = nil
	h.answered(ctx, err)
	return nil
}

// show notes the call as it is made.
func (h *byHand) show(_ abi.Entrypoint, argv, env []string, request []byte) {
	m := h.made
	m.Argv, m.Env, m.Request, m.Served = argv, env, request, request != nil
	for _, v := range env {
		name, path, _ := strings.Cut(v, "=")
		switch name {
		case abi.EnvRequest:
			m.Request, _ = os.ReadFile(path)
		case abi.EnvProcess:
			m.Process, _ = os.ReadFile(path)
		}
	}
	if h.Show != nil {
		h.Show(m)
	}
}

// call makes one of the calls.
func (h *byHand) call(ctx context.Context, e abi.Entrypoint) error {
	switch e {
	case abi.Run:
		return caught(func() error {
			h.pod.run(ctx)
			h.made.Ready = fmt.Sprintf("the pod's leader is process %d", h.pod.sup.Leader.PID)
			return nil
		})
	case abi.Stop:
		return h.pod.stop(ctx, false)
	case abi.GC:
		return h.pod.invoke(ctx, abi.GC, "")
	case abi.FeaturesProbe:
		return h.ask(ctx, h.pod.call(e, ""))
	case abi.AppAdd:
		return h.add(ctx)
	case abi.Enter:
		return h.enter(ctx)
	}
	c := h.app.call(e)
	switch e {
	case abi.AppStats:
		return h.ask(ctx, c)
	case abi.AppSignal:
		c.Request.Signal = h.Signal
	case abi.AppUpdate:
		c.Request.Resources = abi.RawJSON(h.Limits)
	case abi.AppCheckpoint:
		c.Request.Checkpoint = &abi.Checkpoint{Path: must(os.MkdirTemp(h.t.dir, "checkpoint-"))}
	case abi.Network:
		c.Request.Netns = fmt.Sprintf("/proc/%d/ns/net", h.app.PID)
	}
	return h.pod.stage1.Invoke(ctx, c)
}

func (h *byHand) ask(ctx context.Context, c pod.Call) error {
	text, err := h.pod.stage1.Ask(ctx, c)
	if json.Valid(text) {
		h.made.Answer = text
	} else {
		h.made.Output = string(text)
	}
	return err
}

// add calls app/add for the app of the person, or for one of the kit that waits.
func (h *byHand) add(ctx context.Context) error {
	var err error
	change := func(s *specs.Spec) {
		if h.Spec == nil {
			return
		}
		*s = *h.Spec
		if s.Linux == nil {
			s.Linux = &specs.Linux{}
		}
		if !filepath.IsAbs(s.Root.Path) {
			s.Root.Path = filepath.Join(h.Dir, s.Root.Path)
		}
	}
	if err = caught(func() error { h.app = h.pod.prepare("app", change, "wait"); return nil }); err != nil {
		return err
	}
	if err = h.app.add(ctx); err != nil {
		return err
	}
	h.made.Ready = h.says(h.app.bareProcess, "the app's first process")
	return nil
}

func (h *byHand) says(p *bareProcess, what string) string {
	return fmt.Sprintf("%s is process %d, and its exit is recorded by %s", what, p.PID, p.Recorder)
}

// enterLimit is how long the program of enter may run, if it ends by itself.
const enterLimit = 10 * time.Second

// enter executes a program in the app, and waits for its end.
func (h *byHand) enter(ctx context.Context) error {
	args := h.Command
	if len(args) == 0 {
		args = []string{h.t.values.inRoot(), "say", "entered"}
	}
	c := h.app.call(abi.Enter)
	c.Request.Exec, c.Request.Cgroup = "exec", h.app.request.Cgroup
	var err error
	if c.Process, err = read(&specs.Process{Args: args, Cwd: "/", Env: []string{"PATH=" + stage1.DefaultPath}}); err != nil {
		return err
	}
	s, err := newStreams(false)
	if err != nil {
		return err
	}
	h.t.later(func(context.Context) error { return s.Close() })
	defer h.t.children.Expect()()
	p, err := h.pod.stage1.Enter(ctx, c, s.Files())
	if err != nil {
		return err
	}
	q := h.pod.watch(p, "app", "exec")
	h.made.Ready = h.says(q, "the program")
	if err := s.Begin(p.Console); err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, enterLimit*Pace())
	defer cancel()
	if st, err := q.ended(limit); err == nil {
		h.made.Exit = &st.Code
	}
	over := func(_ string, ended bool) bool { return ended }
	out, _ := s.out.wait(limit, over) // the text so far, if a process keeps the stream open
	words, _ := s.err.wait(limit, over)
	h.made.Output = out + words
	return nil
}

// answered notes the answer of the call.
func (h *byHand) answered(_ context.Context, err error) {
	m := h.made
	entries, _ := journal.Read(h.pod.dir)
	for _, e := range entries {
		if e.Entrypoint == h.Entrypoint {
			m.Millis, m.Words, m.Code = e.Millis, e.Error, e.Code
		}
	}
	if failed := (*stage1.EntrypointError)(nil); errors.As(err, &failed) {
		m.Code, m.Words = failed.Code, failed.Text
	} else if err != nil {
		m.Code, m.Words = -1, err.Error()
	}
	m.Meaning = meaning(m.Code, m.Entrypoint)
}

// meaning says what an exit code of a call means: docs/stage1-abi.md, section 2.
func meaning(code int, e abi.Entrypoint) string {
	switch code {
	case 0:
		return "success: everything that " + string(e) + " promises has happened"
	case abi.ExitNotFound:
		return "there is no such app or exec, or its process has ended"
	case abi.ExitFailedPrecondition:
		return "the app or exec is in another state"
	case abi.ExitNotImplemented:
		return "the request asks for something that this stage1 cannot do"
	case -1:
		return "stage 0 has ended the call, or it never ran"
	}
	if code > 128 && code < 128+65 {
		return fmt.Sprintf("failure: the entrypoint was killed by signal %d (%s)", code-128, syscall.Signal(code-128))
	}
	return "failure"
}

// CallLimit is how long Call may take with all that comes before the call.
func CallLimit() time.Duration { return time.Minute * Pace() }
