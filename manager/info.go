package manager

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
	"github.com/rkt/containerd-shim-rkt-v1/wire"
	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// featuresType is containerd's name for the features structure of the OCI
// runtime spec, as JSON.
const featuresType = "types.containerd.io/opencontainers/runtime-spec/1/features/Features"

// Description has the features and annotations of a stage1.
type Description struct {
	// Features is the runtime-spec's features structure as JSON, or empty.
	Features []byte
	// Annotations describe the runtime.
	Annotations map[string]string
}

// info writes a RuntimeInfo to stdout (requirements.md#O5). stdin has the runtime options
// of a handler, or nothing.
func (p *Program) info(ctx context.Context, argv0 string, stdin *os.File, stdout io.Writer) error {
	input, err := early.ReadStdin(stdin)
	if err != nil {
		return err
	}
	info := &types.RuntimeInfo{
		Name:    config.RuntimeName(pinnedStage1(argv0)),
		Version: &types.RuntimeVersion{Version: cmp.Or(p.Version, "unknown"), Revision: p.Revision},
	}
	if len(input) > 0 {
		info.Options = &anypb.Any{}
		if err := wire.Decode(input, info.Options); err != nil {
			return fmt.Errorf("stdin holds no runtime options: %w", err)
		}
	}
	o, err := runtimeOptions([]early.Extension{{TypeURL: info.Options.GetTypeUrl(), Value: info.Options.GetValue()}})
	if err != nil {
		return err
	}
	stage1, err := p.choose(config.Ask{Type: pinnedStage1(argv0), Options: o.Stage1})
	if err != nil {
		return err
	}
	if p.Describe != nil {
		d, err := p.Describe(ctx, stage1)
		if err != nil {
			return fmt.Errorf("stage1 %s: %w", stage1.Name, err)
		}
		if len(d.Features) > 0 {
			info.Features = &anypb.Any{TypeUrl: featuresType, Value: d.Features}
		}
		info.Annotations = d.Annotations
	}
	output, err := wire.Encode(info)
	if err != nil {
		return err
	}
	_, err = stdout.Write(output)
	return err
}
