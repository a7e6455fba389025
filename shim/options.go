package shim

import (
	"context"
	"strings"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/options"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// options reads the runtime options of an app's Create request, and logs unused ones once.
// Options that concern the whole pod took effect when its server was started. options also
// returns the names of all options that are set, for people.
func (s *Service) options(ctx context.Context, id pod.AppID, a *anypb.Any) (abi.Options, []string, error) {
	o, unused, err := options.Parse(a)
	if err != nil {
		return abi.Options{}, nil, err
	}
	if err := s.cfg.Stage1.AdmitOptions(o.Stage1); err != nil {
		return abi.Options{}, nil, err
	}
	if len(unused) > 0 {
		s.unusedOnce.Do(func() {
			pod.Log(ctx, id, "", nil).Infof("runtime options: accepted and not used: %s", strings.Join(unused, ", "))
		})
	}
	return abi.Options{
		NoPivotRoot:  o.NoPivotRoot,
		NoNewKeyring: o.NoNewKeyring,
		IoUID:        o.IoUid,
		IoGID:        o.IoGid,
	}, namesOf(o, unused), nil
}

// arrived returns the names of the options in a message, for people. It returns none if the
// message cannot be read.
func arrived(a *anypb.Any) []string {
	o, unused, err := options.Parse(a)
	if err != nil {
		return nil
	}
	return namesOf(o, unused)
}

// Limits of the names of options: a client can send any keys in a table.
const (
	maxOptions    = 32
	maxOptionName = 64 // bytes
)

// namesOf returns the names of options, and marks those that have no effect.
func namesOf(o *options.Options, unused []string) []string {
	names := o.Names()
	for _, name := range unused[:min(len(unused), maxOptions)] {
		names = append(names, abi.Printable(name[:min(len(name), maxOptionName)])+" (not used)")
	}
	return names
}

// messageName returns the name of the message in an Any, or "" for a nil or empty Any.
func messageName(a *anypb.Any) string {
	url := a.GetTypeUrl()
	return url[strings.LastIndexByte(url, '/')+1:]
}
