package manager

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/options"
)

// DefaultStage1 is the stage1 of a shim whose name pins none, if its options do
// not name one either.
const DefaultStage1 = "native"

// applyOptions decides what of the runtime options concerns the server. Create
// gets them again, for the rest.
func (r *request) applyOptions(argv0 string) error {
	o, err := runtimeOptions(r.Extensions)
	if err != nil {
		return err
	}
	r.cgroup = o.ShimCgroup
	r.Stage1, err = chooseStage1(argv0, o)
	return err
}

// runtimeOptions finds the options among the extensions. One of another type may
// be something else; if it was meant as options, Create refuses it by name.
func runtimeOptions(extensions []Extension) (*options.Options, error) {
	for _, e := range extensions {
		if a := e.Any(); options.IsKnown(a) {
			o, _, err := options.Parse(a)
			return o, err
		}
	}
	return &options.Options{}, nil
}

// chooseStage1 returns the stage1 of a program called by the name argv0 with
// options. A handler that was given a name which pins one counts on it, so
// options cannot change that.
func chooseStage1(argv0 string, o *options.Options) (string, error) {
	pinned := pinnedStage1(argv0)
	switch {
	case o.Stage1 == "":
		return cmp.Or(pinned, DefaultStage1), nil
	case !isStage1Name(o.Stage1):
		return "", fmt.Errorf("runtime options: stage1 %q: a name has small letters, digits and hyphens only", o.Stage1)
	case pinned != "" && pinned != o.Stage1:
		return "", fmt.Errorf("runtime options: they ask for the stage1 %s, and the runtime %s has %s", o.Stage1, runtimeName(pinned), pinned)
	}
	return o.Stage1, nil
}

// pinnedStage1 returns the stage1 that the name of the called program pins, or
// nothing: containerd executes containerd-shim-rkt-NAME-v1, a link to this
// program, for the runtime io.containerd.rkt-NAME.v1. Only the last element of
// the path counts: containerd accepts any path as a runtime.
func pinnedStage1(argv0 string) string {
	name, isShim := strings.CutPrefix(filepath.Base(argv0), "containerd-shim-rkt-")
	name, isV1 := strings.CutSuffix(name, "-v1")
	if !isShim || !isV1 || !isStage1Name(name) {
		return ""
	}
	return name
}

func isStage1Name(name string) bool {
	notPart := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
	return name != "" && !strings.ContainsFunc(name, notPart)
}

// stage1Of is chooseStage1 without options.
func stage1Of(argv0 string) string { return cmp.Or(pinnedStage1(argv0), DefaultStage1) }

// runtimeName is what clients call the runtime of a stage1.
func runtimeName(stage1 string) string {
	if stage1 == DefaultStage1 {
		return "io.containerd.rkt.v1"
	}
	return "io.containerd.rkt-" + stage1 + ".v1"
}
