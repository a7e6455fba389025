package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
)

// supervisors returns the pids of the pods that run, as stage 0 has recorded them.
func (t *trial) supervisors() ([]int, error) {
	files, err := filepath.Glob(filepath.Join(t.Kit.dir, "pods/run/*/shim.json"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, f := range files {
		var record struct {
			Supervisor *pod.SupervisorRecord `json:"supervisor"`
		}
		b, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(b, &record)
		}
		if err != nil {
			return nil, err
		}
		if record.Supervisor != nil {
			pids = append(pids, record.Supervisor.PID)
		}
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("no pod with a supervisor in %s", filepath.Join(t.Kit.dir, "pods/run"))
	}
	return pids, nil
}

// checkCollected does what containerd's `delete` does after the death of a shim. Here
// the shim, this process, is alive, and only looks on.
func checkCollected(ctx context.Context, t *trial) error {
	w := t.wholePod()
	a, err := w.waiting(ctx, nil)
	if err != nil {
		return err
	}
	c := pod.Collector{Store: t.store, OpenStage1: func(dir string) (pod.Stage1, error) {
		image, err := t.images.Load(dir)
		if err != nil {
			return nil, err
		}
		return stage1.New(image, image.Name(), t.children), nil
	}}
	exit, err := c.Collect(ctx, a.config.Bundle, "verify", string(a.id))
	if err != nil {
		return err
	}
	if !exit.Found || exit.Code != 137 {
		return fmt.Errorf("collected %+v, want a container that was found, and killed", exit)
	}
	if err := a.ends(ctx, "", 137); err != nil {
		return err
	}
	for _, p := range a.w.t.remains() {
		if strings.HasPrefix(p, "cgroup ") {
			return fmt.Errorf("after delete there is still %s", p)
		}
	}
	return nil
}
