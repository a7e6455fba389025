package stage1

import (
	"context"
	"path/filepath"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// Probe returns an image of the store with the features that its entrypoint features/probe
// reports, if it has that entrypoint. It also returns the journal's entries of the call,
// if a call was made. If the call fails, Probe returns the image with its features
// document, and the error.
func Probe(ctx context.Context, store *image.Store, i *image.Image, name string, children *proc.Children) (*image.Image, []journal.Entry, error) {
	var entries []journal.Entry
	with, err := store.Probed(ctx, i, func(dir string) ([]byte, error) {
		text, err := New(i, name, children).probe(ctx, dir)
		entries, _ = journal.Read(dir) // an error is ignored, because nothing depends on the journal
		return text, err
	})
	return with, entries, err
}

// probe executes features/probe in a directory and returns its answer.
func (s *Stage1) probe(ctx context.Context, dir string) ([]byte, error) {
	k, err := s.NewCall(pod.Call{Dir: dir}, abi.FeaturesProbe)
	if err != nil {
		return nil, err
	}
	return k.fetch(ctx, image.MaxAnswer, func() error {
		env, err := s.Dialect.Environment(k)
		if err != nil {
			return err
		}
		argv := []string{filepath.Join(s.Rootfs(), s.Entrypoint(k.Entrypoint))}
		return k.Execute(argv, env, &syscall.SysProcAttr{Setpgid: true})
	})
}

// noteProbe writes the call of features/probe that was made for a pod to the pod's
// journal.
func (s *Stage1) noteProbe(dir string) {
	k := &Call{Stage1: s, Call: pod.Call{Dir: dir}}
	for _, e := range s.rules.Probe {
		k.write(e)
	}
}
