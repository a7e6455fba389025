package stage1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// Probe returns an image of the store with the features that its entrypoint features/probe
// answers, if it has one, and the journal's entries of the call, if there was one. If the
// call fails, the image is returned with its features document, and with the error.
func Probe(ctx context.Context, store *image.Store, i *image.Image, name string, children *proc.Children) (*image.Image, []Entry, error) {
	var entries []Entry
	with, err := store.Probed(ctx, i, func(dir string) ([]byte, error) {
		text, err := New(i, name, children).probe(ctx, dir)
		entries, _ = ReadJournal(dir) // nothing depends on it
		return text, err
	})
	return with, entries, err
}

// probe executes features/probe in a directory and returns what it answers.
func (s *Stage1) probe(ctx context.Context, dir string) ([]byte, error) {
	k, err := s.NewCall(pod.Call{Dir: dir}, abi.FeaturesProbe)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, k.Fail(err)
	}
	defer r.Close()
	k.Stdio[1] = w
	env, err := s.Dialect.Environment(k)
	if err == nil {
		argv := []string{filepath.Join(s.Rootfs(), s.Entrypoint(k.Entrypoint))}
		err = k.Execute(argv, env, &syscall.SysProcAttr{Setpgid: true})
	}
	_ = w.Close()
	if err != nil {
		return nil, k.Fail(err)
	}
	_ = r.SetReadDeadline(k.Began.Add(s.Limit(k.Entrypoint)))
	text, readErr := io.ReadAll(io.LimitReader(r, image.MaxAnswer+1))
	if len(text) > image.MaxAnswer {
		return nil, k.Fail(fmt.Errorf("its answer has more than %d bytes", image.MaxAnswer))
	}
	if err := k.awaitEnd(ctx); err != nil {
		return nil, k.Fail(err)
	}
	if readErr != nil {
		return nil, k.Fail(errors.Join(errors.New("a process that it left keeps its output open"), readErr))
	}
	k.Release()
	k.Leave()
	return text, nil
}

// noteProbe puts the call of features/probe that was made for a pod into its journal.
func (s *Stage1) noteProbe(dir string) {
	k := &Call{Stage1: s, Call: pod.Call{Dir: dir}}
	for _, e := range s.rules.Probe {
		k.write(e)
	}
}
