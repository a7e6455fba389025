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
// Options that concern the whole pod took effect when its server was started. options also
// returns the names of all options that are set, for people.
func (s *Service) options(ctx context.Context, a *anypb.Any) (abi.Options, []string, error) {
	o, unused, err := options.Parse(a)
	if err != nil {
		return abi.Options{}, nil, err
	}
	if err := s.cfg.Stage1.AdmitOptions(o.Stage1); err != nil {
		return abi.Options{}, nil, err
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
	}, append(o.Names(), notUsed(unused)...), nil
}

// notUsed marks the names of options that have no effect.
func notUsed(names []string) []string {
	var all []string
	for _, name := range names {
		all = append(all, name+" (not used)")
	}
	return all
}

// messageName returns the name of the message in an Any, or "" for a nil or empty Any.
func messageName(a *anypb.Any) string {
	url := a.GetTypeUrl()
	return url[strings.LastIndexByte(url, '/')+1:]
}
