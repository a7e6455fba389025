package shim

import (
	"context"
	"strings"

	"github.com/containerd/log"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/options"
)

// options reads the runtime options of a Create request, and logs unused ones once.
// Options that concern the whole pod took effect when its server was started.
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

// messageName returns the name of the message in an Any, or "" for a nil or empty Any.
func messageName(a *anypb.Any) string {
	url := a.GetTypeUrl()
	return url[strings.LastIndexByte(url, '/')+1:]
}
