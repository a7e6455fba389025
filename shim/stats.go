package shim

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/wire/cgroup1"
	"github.com/rkt/containerd-shim-rkt-v1/wire/cgroup2"
	"github.com/rkt/containerd-shim-rkt-v1/wire/task"
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
	if st.Version == 2 {
		return anyOf(cgroup2.Name, metricsV2(st))
	}
	return anyOf(cgroup1.Name, metricsV1(st))
}

// fill copies those values that the kernel provides, by name.
func fill(from map[string]uint64, to map[string]*uint64) {
	for name, field := range to {
		*field = from[name]
	}
}
