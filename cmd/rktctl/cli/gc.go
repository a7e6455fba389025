package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/log"
	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// collectedPod is a pod in the output of gc.
type collectedPod struct {
	Pod       string `json:"pod"`
	Collected bool   `json:"collected"`
	Why       string `json:"why,omitempty"`
	Kept      string `json:"kept,omitempty"`
	Error     string `json:"error,omitempty"`
}

func newGC(e *Env) *cobra.Command {
	cmd := verb("gc", "gc [OPTIONS]", "remove the pods that shims have left", none)
	dry := cmd.Flags().Bool("dry-run", false, "remove nothing")
	out := newOutput(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		found, err := collectPods(cmd.Context(), e, *dry)
		list := []collectedPod{}
		for _, s := range found {
			p := collectedPod{Pod: s.UUID, Collected: s.Err == nil && s.Kept == "" && !*dry, Why: s.Why, Kept: s.Kept}
			if s.Err != nil {
				p.Error = s.Err.Error()
			}
			list = append(list, p)
		}
		if err := errors.Join(readable(err), out.write(list, func() *table { return collectedTable(list, *dry) })); err != nil {
			return err
		}
		if slices.ContainsFunc(list, func(p collectedPod) bool { return p.Error != "" }) {
			return errFound
		}
		return nil
	}
	return cmd
}

// collectPods does for all pods what a shim does for some when it starts and when it ends.
func collectPods(ctx context.Context, e *Env, dry bool) (found []disk.Stale, err error) {
	dir := dataDir(e)
	if _, err := os.ReadDir(filepath.Join(dir, "pods")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil // do not make a data directory
	} else if err != nil {
		return nil, err
	}
	store, err := disk.OpenStore(dir)
	if err != nil {
		return nil, err
	}
	images, err := image.OpenStore(dir)
	if err != nil {
		return nil, err
	}
	log.L.Logger.SetOutput(io.Discard) // of the collector's steps: their errors are in the result
	children := proc.NewChildren()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		err = errors.Join(err, children.Close(ctx))
	}()
	store.Children = children
	c := &disk.Collector{Store: store, OpenStage1: stage1.OpenCollected(images, children, Doors()...)}
	return c.CollectAll(ctx, dry)
}

func collectedTable(list []collectedPod, dry bool) *table {
	t := &table{columns: []column{{"UUID", 8}, {"WHAT BECOMES OF IT", 30}}}
	for _, p := range list {
		fate := cell{text: "removed: " + p.Why}
		switch {
		case p.Error != "":
			fate = cell{p.Error, red}
		case p.Kept != "":
			fate.text = "kept: " + p.Kept
		case dry:
			fate.text = "would be removed: " + p.Why
		}
		t.add(p.Pod, fate)
	}
	return t
}
