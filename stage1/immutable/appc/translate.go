package appc

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Options are the inputs of a translation besides the spec.
type Options struct {
	Name   string // of the app; an ACName
	Bundle string // relative sources of mounts are relative to it
	// Excused reports whether a field, as a JSON pointer, may be left out.
	Excused func(pointer string) bool
	// Mounted reports whether stage 0 makes a mount itself: such a mount gets no volume.
	Mounted func(specs.Mount) bool
}

// App is a container as appc describes it.
type App struct {
	App      types.App
	ReadOnly bool
	Mounts   []schema.Mount // mounts of the pod's volumes
	Volumes  []types.Volume
}

// Fields lists the fields, as JSON pointers, that a translation can express. Translate may
// still refuse certain values of them. consoleSize and hostname are no fields of appc, but
// stage 0 applies them.
func Fields() []string {
	return []string{
		"/process/args", "/process/cwd", "/process/env", "/process/terminal", "/process/consoleSize",
		"/process/user/uid", "/process/user/gid", "/process/user/additionalGids", "/process/user/username",
		"/process/capabilities", "/process/noNewPrivileges", "/process/oomScoreAdj", "/process/selinuxLabel",
		"/root", "/mounts/*/destination", "/mounts/*/type", "/mounts/*/source", "/mounts/*/options",
		"/linux/seccomp",
	}
}

// Translate translates a spec.
func Translate(spec *specs.Spec, o Options) (*App, error) {
	if o.Excused == nil {
		o.Excused = func(string) bool { return false }
	}
	if o.Mounted == nil {
		o.Mounted = func(specs.Mount) bool { return false }
	}
	t := &translator{spec: spec, Options: o, app: &App{}}
	for _, step := range []func() error{t.process, t.environment, t.isolators, t.mounts} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	t.app.ReadOnly = spec.Root != nil && spec.Root.Readonly
	return t.app, nil
}

type translator struct {
	Options
	spec *specs.Spec
	app  *App
}

// unsaid returns the error for a field that appc cannot express, or nil if the field is
// excused. general is the pointer by which an operator can excuse the field.
func (t *translator) unsaid(general, particular, why string) error {
	if t.Excused(general) {
		return nil
	}
	return fmt.Errorf("config.json asks for %s, which a stage1 of rkt's interface cannot be told: %s: %w", particular, why, errdefs.ErrNotImplemented)
}

func (t *translator) process() error {
	p := t.spec.Process
	if p == nil || len(p.Args) == 0 {
		return fmt.Errorf("config.json has no /process/args: %w", errdefs.ErrInvalidArgument)
	}
	t.app.App = types.App{
		Exec:  p.Args,
		User:  strconv.FormatUint(uint64(p.User.UID), 10),
		Group: strconv.FormatUint(uint64(p.User.GID), 10),
	}
	for _, gid := range p.User.AdditionalGids {
		t.app.App.SupplementaryGIDs = append(t.app.App.SupplementaryGIDs, int(gid))
	}
	if p.Cwd != "" {
		if !filepath.IsAbs(p.Cwd) {
			return fmt.Errorf("/process/cwd %q is not absolute: %w", p.Cwd, errdefs.ErrInvalidArgument)
		}
		t.app.App.WorkingDirectory = p.Cwd
	}
	return nil
}

// isVariable reports whether appc accepts the name of a variable: it begins with a letter
// or _, and then may have digits, dots and hyphens, too.
func isVariable(name string) bool {
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || !strings.ContainsRune("0123456789.-", rune(c))) {
			return false
		}
	}
	return name != ""
}

// environment keeps the last value of each name, which is the one that a program sees. rkt
// writes variables to a file with one line for each, so a value must not have line breaks.
func (t *translator) environment() error {
	for i, kv := range t.spec.Process.Env {
		name, value, ok := strings.Cut(kv, "=")
		var why string
		switch {
		case !ok || !isVariable(name):
			why = fmt.Sprintf("%.40q is no name of a variable there", name)
		case strings.ContainsAny(value, "\n\x00"):
			why = fmt.Sprintf("the value of %s has more than one line", name)
		default:
			t.app.App.Environment.Set(name, value)
			continue
		}
		if err := t.unsaid("/process/env", fmt.Sprintf("/process/env/%d", i), why); err != nil {
			return err
		}
	}
	return nil
}

// Env returns the text of rkt/env/APP: the environment of an app. For variables that the
// app lacks, it has rkt's values.
func Env(name string, app *types.App) []byte {
	env := types.Environment{}
	for _, v := range app.Environment {
		env.Set(v.Name, v.Value)
	}
	for _, v := range []types.EnvironmentVariable{
		{Name: "PATH", Value: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		{Name: "SHELL", Value: "/bin/sh"}, {Name: "USER", Value: "root"}, {Name: "LOGNAME", Value: "root"}, {Name: "HOME", Value: "/root"},
	} {
		if _, ok := env.Get(v.Name); !ok {
			env.Set(v.Name, v.Value)
		}
	}
	env.Set("AC_APP_NAME", name)
	var b strings.Builder
	for _, v := range env {
		fmt.Fprintf(&b, "%s=%s\n", v.Name, v.Value)
	}
	return []byte(b.String())
}
