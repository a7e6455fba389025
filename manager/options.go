package manager

import (
	"path/filepath"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/options"
)

// applyOptions decides what of the runtime options concerns the server. Create
// gets them again, for the rest.
func (r *request) applyOptions(argv0 string) error {
	o, err := runtimeOptions(r.Extensions)
	if err != nil {
		return err
	}
	r.cgroup = o.ShimCgroup
	r.Asked = config.Ask{Type: pinnedStage1(argv0), Options: o.Stage1}
	return nil
}

// choose makes the choice for a new pod. A pod that has its server keeps what it
// has, whatever the configuration has become: its server admits further containers
// or does not.
func (p *Program) choose(ask config.Ask) (config.Choice, error) {
	c, err := p.Config()
	if err != nil {
		return config.Choice{}, err
	}
	return c.Choose(ask)
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

// pinnedStage1 returns the stage1 that the name of the called program pins, or
// nothing: containerd executes containerd-shim-rkt-NAME-v1, a link to this
// program, for the runtime io.containerd.rkt-NAME.v1. Only the last element of
// the path counts: containerd accepts any path as a runtime.
func pinnedStage1(argv0 string) string {
	name, isShim := strings.CutPrefix(filepath.Base(argv0), "containerd-shim-rkt-")
	name, isV1 := strings.CutSuffix(name, "-v1")
	if !isShim || !isV1 || !config.IsName(name) {
		return ""
	}
	return name
}
