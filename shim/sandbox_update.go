package shim

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/sandbox"
)

// updateSandbox accepts a resized pod and changes no limits. The kubelet owns the pod's
// cgroup, writes the limits to it, and updates the containers. If a shim wrote the
// limits again, it might undo a later change of the kubelet. containerd's own
// controller of pods with a pause container does the same.
func (s *Service) updateSandbox(_ context.Context, r *sandbox.UpdateSandboxRequest) (*sandbox.UpdateSandboxResponse, error) {
	if _, err := s.pod.SandboxStatus(r.SandboxId); err != nil {
		return nil, err
	}
	return &sandbox.UpdateSandboxResponse{}, nil
}

// sandboxInfo returns the details for a verbose status request. containerd's CRI
// reads all but the last and adds details of its own.
func (s *Service) sandboxInfo(st pod.SandboxStatus) (map[string]string, error) {
	info := struct {
		PID    int         `json:"pid"`
		State  string      `json:"processStatus"`
		Closed bool        `json:"netNamespaceClosed"`
		Spec   *specs.Spec `json:"runtimeSpec,omitempty"`
		Stage1 string      `json:"stage1"`
	}{PID: st.PID, State: st.State.String(), Stage1: s.cfg.Stage1.Choice().Name}
	if c := s.asked.Load(); c != nil && st.PID != 0 {
		info.Spec, info.Closed = sandboxSpec(*c, st.PID), networkClosed(*c)
	}
	text, err := json.Marshal(info)
	if err != nil {
		return nil, fmt.Errorf("describe the sandbox: %w", err)
	}
	return map[string]string{"info": string(text)}, nil
}
