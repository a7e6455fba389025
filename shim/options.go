package shim

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// Names of the option messages that clients send. They are the whole type URL,
// or what follows its last slash.
const (
	runcOptions    = "containerd.runc.v1.Options"
	runtimeOptions = "runtimeoptions.v1.Options"
)

// options reads what Create was asked for beside the spec (requirement O1).
// Users who only change the runtime_type of an existing handler keep sending
// runc's options, in either message: what means nothing here is no reason to
// refuse the container.
func (s *Service) options(ctx context.Context, a *anypb.Any) (abi.Options, error) {
	switch name := messageName(a); name {
	case "":
		return abi.Options{}, nil
	case runcOptions:
		return s.runcOptions(ctx, a)
	case runtimeOptions:
		var o runtimeoptions.Options
		if err := proto.Unmarshal(a.GetValue(), &o); err != nil {
			return abi.Options{}, fmt.Errorf("runtime options %s: %v: %w", name, err, errdefs.ErrInvalidArgument)
		}
		s.ignoreOnce.Do(func() {
			log.G(ctx).Infof("runtime options of type %s are accepted and not used", name)
		})
		return abi.Options{}, nil
	default:
		return abi.Options{}, fmt.Errorf("runtime options of the unknown type %q: %w", a.GetTypeUrl(), errdefs.ErrInvalidArgument)
	}
}

func (s *Service) runcOptions(ctx context.Context, a *anypb.Any) (abi.Options, error) {
	var o options.Options
	if err := proto.Unmarshal(a.GetValue(), &o); err != nil {
		return abi.Options{}, fmt.Errorf("runtime options %s: %v: %w", runcOptions, err, errdefs.ErrInvalidArgument)
	}
	if o.BinaryName != "" || o.Root != "" || o.SystemdCgroup || o.CriuImagePath != "" || o.CriuWorkPath != "" {
		log.G(ctx).Debugf("runtime options %s: those about runc's binary, root directory, cgroup driver and criu are not used", runcOptions)
	}
	return abi.Options{
		NoPivotRoot:  o.NoPivotRoot,
		NoNewKeyring: o.NoNewKeyring,
		IoUID:        o.IoUid,
		IoGID:        o.IoGid,
	}, nil
}

// messageName returns the name of the message in an Any, and nothing for no Any
// or an empty one.
func messageName(a *anypb.Any) string {
	url := a.GetTypeUrl()
	return url[strings.LastIndexByte(url, '/')+1:]
}
