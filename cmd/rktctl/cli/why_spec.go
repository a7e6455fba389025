package cli

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/config/annotation"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
)

// verdict says what would become of a config.json.
type verdict struct {
	Stage1 string `json:"stage1,omitempty"`
	By     string `json:"by,omitempty"`
	// Error is the error with which Create would fail, or empty. Refused are all fields that
	// the stage1 refuses, and Ignored those that would have no effect.
	Error   string       `json:"error,omitempty"`
	Refused []unenforced `json:"refused"`
	Ignored []unenforced `json:"ignored"`
	Note    string       `json:"note"`
}

// byOption is the By of a choice by the option --stage1.
const byOption = config.By("--stage1")

// note says what a verdict does not cover.
const note = "A stage1 also looks at values, when it makes the container: only a start shows that."

// spec judges a config.json.
func (w *why) spec(ctx context.Context, path, pinned string) error {
	text, err := readSpec(path)
	if err != nil {
		return err
	}
	c, err := config.Open(w.env.Getenv)
	if err != nil {
		return err
	}
	v := &verdict{Refused: []unenforced{}, Ignored: []unenforced{}, Note: note}
	if err := w.judge(ctx, v, c, path, text, pinned); err != nil {
		return err
	}
	if w.out.isText() {
		v.write(w.env, path)
	} else if err := w.out.writeDocument(v); err != nil {
		return err
	}
	if v.Error != "" {
		return errFound
	}
	return nil
}

// judge makes the checks of a start, in their order and by the same functions.
func (w *why) judge(ctx context.Context, v *verdict, c *config.Config, path string, text []byte, pinned string) error {
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return err
	}
	app, err := pod.ReadSpec("CONTAINER", dir, text)
	if err != nil {
		v.Error = err.Error()
		return nil
	}
	choice, err := w.choose(c, config.Ask{Type: pinned, Annotations: app.OCI.Annotations})
	if err != nil {
		v.Error = err.Error()
		v.Refused = append(v.Refused, unenforced{"/annotations", err.Error()})
		return nil
	}
	v.Stage1, v.By = choice.Name, string(choice.By)
	i, _, err := imageOf(ctx, w.env, c, choice.Name)
	if err != nil {
		return err
	}
	defer i.Close()
	i, _, probeErr := probed(ctx, i, choice.Name)
	if probeErr != nil {
		v.Note = "features/probe has failed, so the features are those of the image's document: " + probeErr.Error() + ". " + v.Note
	}
	rules := stage1.Rules{Excused: choice.Accept, RefuseUnknown: choice.RefuseUnknown}
	j, err := judgeOf(i, choice.Name, rules)
	if err != nil {
		v.Error = err.Error()
		return nil
	}
	v.fields(j, app)
	for _, check := range []func() error{
		func() error { return pod.CheckApp("CONTAINER", dir, app) },
		func() error { return checkFields(j, app) },
		func() error { return checkLimits(j, &app.OCI) },
	} {
		if err := check(); err != nil {
			v.Error = err.Error()
			return nil
		}
	}
	return nil
}

// choose returns the stage1 for which the config.json is judged.
func (w *why) choose(c *config.Config, ask config.Ask) (config.Choice, error) {
	if w.stage1 == "" {
		return c.Choose(ask)
	}
	if err := annotation.Check(ask.Annotations); err != nil {
		return config.Choice{}, err
	}
	choice, err := c.Choose(config.Ask{Type: w.stage1})
	choice.By = byOption
	return choice, err
}

// fields adds the fields that are refused or ignored.
func (v *verdict) fields(j judge, app *spec.App) {
	found := j.Judge(app)
	for _, p := range found.Refused {
		v.Refused = append(v.Refused, unenforced{p, "stage1 " + v.Stage1 + " does not support it"})
	}
	for _, u := range found.Unknown {
		if found.RefuseUnknown {
			v.Refused = append(v.Refused, unenforced{u, noSpecHas + ", and the configuration refuses such fields"})
		} else {
			v.Ignored = append(v.Ignored, unenforced{u, noSpecHas})
		}
	}
	v.Ignored = append(v.Ignored, ignored(j, app)...)
}

// checkFields is the check of fields that every start makes.
func checkFields(j judge, app *spec.App) error {
	s, ok := j.(pod.Stage1)
	if !ok {
		return nil
	}
	_, err := s.CheckSpec(app)
	return err
}

// checkLimits is the check of the cgroup that every start makes.
func checkLimits(j judge, s *specs.Spec) error {
	if s.Linux == nil {
		return nil
	}
	if s.Linux.CgroupsPath != "" {
		if _, err := (cgroup.Path{Spec: s.Linux.CgroupsPath, Namespace: "default", ID: "container"}).Resolve(); err != nil {
			return err
		}
	}
	if j.Owns(abi.OwnResources) {
		return nil
	}
	return cgroup.Check(s.Linux.Resources)
}

func (v *verdict) write(e *Env, path string) {
	line := func(word string, c colour, field, why string) {
		fmt.Fprintf(e.Stdout, "%s  %s: %s\n", e.paint(fmt.Sprintf("%-8s", word), c), abi.Printable(field), abi.Printable(why))
	}
	if v.Stage1 != "" {
		reason := reasons[v.By]
		fmt.Fprintf(e.Stdout, "The stage1 is %s: %s.\n", v.Stage1, reason)
	}
	for _, r := range v.Refused {
		line("refused", red, r.Field, r.Why)
	}
	for _, i := range v.Ignored {
		line("ignored", yellow, i.Field, i.Why)
	}
	if v.Error != "" {
		fmt.Fprintf(e.Stdout, "A container with %s would fail: %s\n", path, abi.Printable(v.Error))
		return
	}
	fmt.Fprintf(e.Stdout, "Neither stage 0 nor the fields of the stage1 refuse %s. %s\n", path, abi.Printable(v.Note))
}
