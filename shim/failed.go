package shim

import (
	"errors"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
)

// failed reports a start that has failed to ServiceConfig.Failed. f has what is known of it in
// addition.
func (s *Service) failed(f disk.FailedStart, id, bundle string, err error) {
	if s.cfg.Failed == nil || errdefs.IsAlreadyExists(err) { // an id that is in use is the client's error
		return
	}
	f.Namespace, f.Error = s.cfg.Namespace, err.Error()
	start := disk.Start{Time: time.Now(), ID: id, Bundle: bundle}
	if had := (*pod.StartFailure)(nil); errors.As(err, &had) {
		start.Pod, f.Stage1, f.Calls = had.Pod, &had.Stage1, had.Calls
	}
	f.Starts = []disk.Start{start}
	s.cfg.Failed(f)
}

// bundleOf returns the bundle of an app, or an empty string.
func (s *Service) bundleOf(id string) string {
	st, err := s.pod.Status(pod.AppID(id), "")
	if err != nil {
		return ""
	}
	return processOf(st.Tag).bundle
}
