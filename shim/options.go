package shim

import (
	"context"
	"strings"

	"github.com/containerd/log"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/options"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// options reads what Create was asked for beside the spec, and says once what of
// it is not used. What concerns the whole pod was decided when its server was
// started.
func (s *Service) options(ctx context.Context, a *anypb.Any) (abi.Options, error) {
	o, unused, err := options.Parse(a)
	if err != nil {
		return abi.Options{}, err
	}
	if err := s.cfg.Stage1.AdmitOptions(o.Stage1); err != nil {
		return abi.Options{}, err
	}
	if len(unused) > 0 {
		s.unusedOnce.Do(func() {
			log.G(ctx).Infof("runtime options: accepted and not used: %s", strings.Join(unused, ", "))
		})
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
