package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// usage is what an app has used in an interval.
type usage struct {
	Pod    string  `json:"pod"`
	App    string  `json:"app"`
	CPU    float64 `json:"cpu"`    // share of one processor: 1.5 is one and a half
	Memory uint64  `json:"memory"` // bytes
	Limit  uint64  `json:"limit,omitempty"`
	Pids   uint64  `json:"pids"`
}

func newTop(e *Env) *cobra.Command {
	cmd := verb("top", "top [OPTIONS] [POD]", "show the processor time and the memory that apps use", takes(0, 1, "one POD"))
	cmd.ValidArgsFunction = completePods(e, 1)
	interval := cmd.Flags().Duration("interval", time.Second, "the `TIME` between two readings of the kernel's counters")
	count := cmd.Flags().IntP("count", "n", 0, "show `N` intervals; without it, one, and on a terminal as many as until it is interrupted")
	out := newOutput(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *interval < 10*time.Millisecond || *count < 0 {
			return errUsage(cmd, "the interval has to be at least 10ms, and the number not negative")
		}
		n := *count
		if n == 0 && !(out.isText() && isTerminal(e.Stdout)) {
			n = 1
		}
		return top(cmd.Context(), out, args, *interval, n)
	}
	return cmd
}

// top shows n intervals; with 0 until ctx ends.
func top(ctx context.Context, out *output, args []string, interval time.Duration, n int) error {
	before, err := readUsage(out.env, args)
	for i := 0; err == nil && (n == 0 || i < n); i++ {
		if proc.Sleep(ctx, interval) != nil {
			return nil // the user has seen enough
		}
		var now map[string]sample
		if now, err = readUsage(out.env, args); err != nil {
			break
		}
		list := usages(before, now)
		out.again(i == 0)
		if err = out.write(list, func() *table { return usageTable(list) }); err != nil {
			break
		}
		before = now
	}
	return err
}

// sample is a reading of an app's counters.
type sample struct {
	selectedApp
	view.Usage
}

// readUsage reads the counters of the apps that have a cgroup.
func readUsage(e *Env, args []string) (map[string]sample, error) {
	selected, err := selectPods(e, args)
	if err != nil {
		return nil, err
	}
	samples := map[string]sample{}
	for _, s := range selected {
		if u := s.app.Usage(); u != nil {
			samples[s.pod.UUID+"/"+s.app.Name] = sample{s, *u}
		}
	}
	return samples, nil
}

// usages returns what was used between two samples, that which has used most first.
func usages(before, now map[string]sample) []usage {
	list := []usage{}
	for key, s := range now {
		u := usage{Pod: s.pod.UUID, App: cmp.Or(s.app.ID, s.app.Name), Memory: s.Memory, Limit: s.Limit, Pids: s.Pids}
		if b, ok := before[key]; ok && s.Time.After(b.Time) && s.Usage.CPU >= b.Usage.CPU {
			u.CPU = float64(s.Usage.CPU-b.Usage.CPU) / float64(s.Time.Sub(b.Time))
		}
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b usage) int {
		return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.Memory, a.Memory), cmp.Compare(a.App, b.App), cmp.Compare(a.Pod, b.Pod))
	})
	return list
}

func usageTable(list []usage) *table {
	t := &table{columns: []column{{"POD", 8}, {"APP", 12}, {"CPU", 0}, {"MEMORY", 0}, {"LIMIT", 0}, {"TASKS", 0}}}
	for _, u := range list {
		limit := "-"
		if u.Limit > 0 {
			limit = size(u.Limit)
		}
		t.add(u.Pod, u.App, perCent(u.CPU), size(u.Memory), limit, fmt.Sprint(u.Pids))
	}
	return t
}
