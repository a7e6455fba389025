package manager

import (
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
	"github.com/rkt/containerd-shim-rkt-v1/options"
)

// choose returns the choice for a new pod. A pod that has a server keeps its stage1 if the
// configuration changes: the server accepts or refuses further containers by its own choice.
func (p *Program) choose(ask config.Ask) (config.Choice, error) {
	c, err := p.Config()
	if err != nil {
		return config.Choice{}, err
	}
	return c.Choose(ask)
}

// runtimeOptions returns the options among the extensions. It ignores extensions of
// unknown types; if one was meant as options, Create refuses it by name.
func runtimeOptions(extensions []early.Extension) (*options.Options, error) {
	for _, e := range extensions {
		if a := (&anypb.Any{TypeUrl: e.TypeURL, Value: e.Value}); options.IsKnown(a) {
			o, _, err := options.Parse(a)
			return o, err
		}
	}
	return &options.Options{}, nil
}

// pinnedStage1 returns the stage1 that the name of the called program pins, or an empty
// string. For the runtime io.containerd.rkt-NAME.v1 containerd executes
// containerd-shim-rkt-NAME-v1, a link to this program. Only the last element of the path
// counts, because containerd accepts any path as a runtime.
func pinnedStage1(argv0 string) string {
	name, isShim := strings.CutPrefix(filepath.Base(argv0), "containerd-shim-rkt-")
	name, isV1 := strings.CutSuffix(name, "-v1")
	if !isShim || !isV1 || !config.IsName(name) {
		return ""
	}
	return name
}
