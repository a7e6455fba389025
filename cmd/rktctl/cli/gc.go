package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
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
	err = withCollector(ctx, dir, func(c *disk.Collector) error {
		found, err = c.CollectAll(ctx, dry)
		return err
	})
	return found, err
}

// withCollector calls f with the collector that shims have.
func withCollector(ctx context.Context, dir string, f func(*disk.Collector) error) error {
	store, err := disk.OpenStore(dir)
	if err != nil {
		return err
	}
	images, err := image.OpenStore(dir)
	if err != nil {
		return err
	}
	store.Children = proc.NewChildren()
	err = f(&disk.Collector{Store: store, OpenStage1: stage1.OpenCollected(images, store.Children, Doors()...)})
	store.Hooks.Wait() // poststop hooks that outlast the call would end with this process
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return errors.Join(err, store.Children.Close(end))
}

// removePod does for a pod whose shim is dead what the shim's `delete` does when containerd
// calls it for each of the pod's containers.
func removePod(ctx context.Context, e *Env, p *view.Pod) error {
	err := withCollector(ctx, dataDir(e), func(c *disk.Collector) error {
		for _, a := range p.Own() { // with each of them, its debug apps
			exit, err := c.Collect(ctx, a.Bundle, p.Namespace, a.ID)
			if err == nil && exit.Left {
				err = c.Finish(ctx, exit.Rest, false)
			}
			if err != nil {
				return err
			}
		}
		if p.SandboxBundle == "" {
			return nil
		}
		_, err := c.Collect(ctx, p.SandboxBundle, p.Namespace, p.Sandbox)
		return err
	})
	if err != nil {
		return err
	}
	n, err := openNode(e)
	if err == nil {
		_, err = n.Pod(p.UUID)
	}
	if err == nil {
		return fmt.Errorf("pod %s is still there: containerd has forgotten it: use rktctl gc", p.UUID)
	}
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
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
