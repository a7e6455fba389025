package shim

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/api/runtime/task/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// stats returns statistics, in containerd's message for the host's version of cgroups
// (requirements.md#T14).
func (s *Service) stats(ctx context.Context, r *task.StatsRequest) (*task.StatsResponse, error) {
	st, err := s.pod.Stats(ctx, pod.AppID(r.ID))
	if err != nil {
		return nil, err
	}
	a, err := metrics(st)
	if err != nil {
		return nil, fmt.Errorf("statistics of container %s: %w", r.ID, err)
	}
	return &task.StatsResponse{Stats: a}, nil
}

// metrics packs statistics into containerd's message.
func metrics(st pod.Stats) (*anypb.Any, error) {
	var msg proto.Message = metricsV1(st)
	if st.Version == 2 {
		msg = metricsV2(st)
	}
	return anyOf(msg)
}

// fill copies those values that the kernel provides, by name.
func fill(from map[string]uint64, to map[string]*uint64) {
	for name, field := range to {
		*field = from[name]
	}
}
