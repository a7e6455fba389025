package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/config/annotation"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// story is a pod and what has happened to it.
type story struct {
	Pod   *view.Pod       `json:"pod"`
	Apps  []appStory      `json:"apps"`
	Calls []journal.Entry `json:"calls"`
}

// appStory has what is known of an app's beginning. Its spec is read from containerd's
// bundle, which is gone after the app.
type appStory struct {
	ID          string            `json:"id"`
	Annotations map[string]string `json:"annotations"` // ours
	Others      int               `json:"otherAnnotations"`
	Options     []string          `json:"options,omitempty"`
	NotEnforced []unenforced      `json:"notEnforced"`
	Problem     string            `json:"problem,omitempty"` // why something of this is not known
}

// unenforced is a field of a config.json that has no effect.
type unenforced struct {
	Field string `json:"field"`
	Why   string `json:"why"`
}

// storyOf tells a pod's story, or only that of one app.
func (w *why) storyOf(ctx context.Context, node *view.Node, p *view.Pod, app *view.App) (*story, error) {
	entries, err := node.Journal(p.UUID)
	if err != nil {
		return nil, err
	}
	s := &story{Pod: p, Apps: []appStory{}, Calls: []journal.Entry{}}
	for _, e := range entries {
		if app == nil || e.App == "" || e.App == app.Name {
			s.Calls = append(s.Calls, e.WithoutArguments())
		}
	}
	judge, problem := w.judgeOf(ctx, p)
	for i := range p.Apps {
		if a := &p.Apps[i]; app == nil || a == app {
			s.Apps = append(s.Apps, tell(a, judge, problem))
		}
	}
	return s, nil
}

// judge is the part of a stage1 that lists the fields that it does not enforce.
type judge interface {
	Judge(*spec.App) stage1.Verdict
	Owns(abi.Own) bool
}

// judgeOf returns the stage1 with which a pod was started.
func (w *why) judgeOf(ctx context.Context, p *view.Pod) (judge, error) {
	store, err := existingStore(w.env)
	if err == nil && store == nil {
		err = fmt.Errorf("%s: %w", treesDir(w.env), fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	i, err := store.Load(p.Dir)
	if err != nil {
		return nil, err
	}
	i, _, _ = probed(ctx, i, p.Stage1.Name) // without an answer, the document of the image counts
	return judgeOf(i, p.Stage1.Name, stage1.Rules{Excused: p.Stage1.Excused})
}

func judgeOf(i *image.Image, name string, rules stage1.Rules) (judge, error) {
	opened, err := stage1.For(i, name, nil, rules, Doors()...) // no process is started
	if err != nil {
		return nil, err
	}
	j, ok := opened.(judge)
	if !ok {
		return nil, fmt.Errorf("stage1 %s cannot be asked about a config.json", name)
	}
	return j, nil
}

// tell returns the story of an app.
func tell(a *view.App, j judge, problem error) appStory {
	s := appStory{ID: a.ID, Options: a.Options, Annotations: map[string]string{}, NotEnforced: []unenforced{}}
	for _, u := range a.Unknown {
		s.NotEnforced = append(s.NotEnforced, unenforced{u, noSpecHas})
	}
	text, err := readSpec(filepath.Join(a.Bundle, "config.json"))
	var read *spec.App
	if err == nil {
		read, err = pod.ReadSpec(pod.AppID(a.ID), a.Bundle, text)
	}
	if errors.Is(err, os.ErrNotExist) {
		err = errors.New("its config.json is gone with its bundle")
	}
	if err != nil {
		s.Problem = err.Error()
		return s
	}
	for key, value := range read.OCI.Annotations {
		if strings.HasPrefix(key, annotation.Prefix) {
			s.Annotations[key] = value
		} else {
			s.Others++
		}
	}
	if problem != nil {
		s.Problem = problem.Error()
		return s
	}
	s.NotEnforced = append(s.NotEnforced, ignored(j, read)...)
	return s
}

// Reasons for which a field has no effect.
const (
	noSpecHas = "no OCI runtime spec has it"
	isExcused = "the stage1 does not honour it, and the configuration lets it (accept)"
	isNotSet  = "a limit that is not set"
)

// ignored returns the known fields of a spec that a stage1 does not enforce and need not.
func ignored(j judge, s *spec.App) []unenforced {
	var all []unenforced
	for _, p := range j.Judge(s).Excused {
		all = append(all, unenforced{p, isExcused})
	}
	if l := s.OCI.Linux; l != nil && !j.Owns(abi.OwnResources) {
		for _, limit := range cgroup.Ignored(l.Resources) {
			all = append(all, unenforced{limit, isNotSet})
		}
	}
	return all
}

// write writes the story as text.
func (s *story) write(out io.Writer) error {
	var b strings.Builder
	p := s.Pod
	fmt.Fprintf(&b, "Pod %s is %s.\n", p.UUID, p.State)
	if p.Sandbox != "" {
		fmt.Fprintf(&b, "It was made at %s for %s, in the namespace %s of the containerd at %s.\n", p.Created.Local().Format(time.DateTime), p.Sandbox, p.Namespace, cmp.Or(p.Daemon, "an unknown address"))
	}
	for _, process := range []struct {
		name string
		*view.Process
	}{{"shim", p.Shim}, {"supervisor", p.Supervisor}} {
		if process.Process != nil && !process.Alive {
			fmt.Fprintf(&b, "Its %s, process %d, has ended.\n", process.name, process.PID)
		}
	}
	for _, problem := range p.Problems {
		fmt.Fprintf(&b, "A record is damaged: %s\n", problem)
	}
	fmt.Fprintf(&b, "\n%s", chosen(p.Stage1))
	for _, key := range sortedKeys(p.Annotations) {
		fmt.Fprintf(&b, "  annotation of the pod that has arrived: %s = %s\n", key, p.Annotations[key])
	}
	for i, a := range s.Apps {
		for _, v := range p.Apps {
			if v.ID == a.ID {
				fmt.Fprintf(&b, "\nContainer %s is %s%s.\n", a.ID, v.State, exitOf(v.Exit))
			}
		}
		s.Apps[i].write(&b)
	}
	writeCalls(&b, s.Calls)
	_, err := io.WriteString(out, abi.Printable(b.String()))
	return err
}

func exitOf(e *view.Exit) string {
	if e == nil {
		return ""
	}
	return fmt.Sprintf(", with code %d since %s", e.Code, e.Time.Local().Format(time.DateTime))
}

func (a *appStory) write(b *strings.Builder) {
	for _, key := range sortedKeys(a.Annotations) {
		fmt.Fprintf(b, "  annotation that has arrived: %s = %s\n", key, a.Annotations[key])
	}
	if len(a.Annotations) == 0 && a.Problem == "" {
		fmt.Fprintf(b, "  no annotation of this runtime has arrived, and %d others\n", a.Others)
	}
	if len(a.Options) > 0 {
		fmt.Fprintf(b, "  runtime options that have arrived: %s\n", strings.Join(a.Options, ", "))
	}
	for _, u := range a.NotEnforced {
		fmt.Fprintf(b, "  not enforced: %s: %s\n", u.Field, u.Why)
	}
	if a.Problem != "" {
		fmt.Fprintf(b, "  the rest is not known: %s\n", a.Problem)
	} else if len(a.NotEnforced) == 0 {
		b.WriteString("  everything that its config.json asks for is enforced\n")
	}
}

// reasons says which setting has chosen a stage1.
var reasons = map[string]string{
	string(config.ByAnnotation): "the pod's annotation " + annotation.Stage1 + " asks for it",
	string(config.ByType):       "the name of the runtime pins it",
	string(config.ByOptions):    "the runtime options of the client name it",
	string(config.ByConfig):     "it is the default of this node's configuration",
	string(config.ByNothing):    "nothing chooses another one",
	string(byOption):            "the option --stage1 names it",
}

// chosen says which stage1 a pod has, and why.
func chosen(s view.Stage1) string {
	text := fmt.Sprintf("The stage1 is %s: %s.\n", cmp.Or(s.Name, "not known"), cmp.Or(reasons[s.By], "no record says why"))
	if s.Digest != "" {
		text += "  digest: " + s.Digest + "\n"
	}
	if len(s.Excused) > 0 {
		text += "  it may ignore: " + strings.Join(s.Excused, ", ") + "\n"
	}
	return text
}

// writeCalls writes calls in a table whose last column may be long.
func writeCalls(b *strings.Builder, calls []journal.Entry) {
	if len(calls) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%-12s  %9s  %-16s  %4s  %s\n", "TIME", "MS", "CALL", "CODE", "FOR, AND WHAT IT SAID")
	for _, c := range calls {
		name, code, words := string(c.Entrypoint), fmt.Sprint(c.Code), c.App
		if c.Exec != "" {
			words += " exec " + c.Exec
		}
		if c.Served {
			words += " (on its socket)"
		}
		if c.State != "" {
			code = c.State
		}
		if len(c.Unknown) > 0 {
			name, code, words = "config.json", "", words+": fields that are ignored: "+strings.Join(c.Unknown, ", ")
		}
		if c.Debug != nil {
			name, words = "debug", words+" "+debugText(&c)
		}
		if c.Error != "" {
			words += ": " + c.Error
		}
		words = strings.Join(strings.Fields(words), " ")
		fmt.Fprintf(b, "%-12s  %9.1f  %-16s  %4s  %s\n", c.Time.Local().Format("15:04:05.000"), c.Millis, name, code, strings.TrimPrefix(words, ": "))
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
