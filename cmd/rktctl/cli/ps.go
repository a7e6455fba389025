package cli

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
)

// listedProcess is a process in the list of ps.
type listedProcess struct {
	Pod string `json:"pod"`
	App string `json:"app"`
	view.AppProcess
}

func newPs(e *Env) *cobra.Command {
	cmd := verb("ps", "ps [OPTIONS] [POD]", "list the processes of pods", takes(0, 1, "one POD"))
	cmd.ValidArgsFunction = completePods(e, 1)
	out := newOutput(e, cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		selected, err := selectPods(e, args)
		if err != nil {
			return err
		}
		list := []listedProcess{}
		for _, s := range selected {
			processes, err := s.app.Processes()
			if err != nil {
				return err
			}
			for _, p := range processes {
				list = append(list, listedProcess{s.pod.UUID, cmp.Or(s.app.ID, s.app.Name), p})
			}
		}
		return out.write(list, func() *table {
			t := &table{columns: []column{{"POD", 8}, {"APP", 12}, {"PID", 0}, {"PARENT", 0}, {"STATE", 0}, {"TIME", 0}, {"MEMORY", 0}, {"COMMAND", 0}}}
			for _, p := range list {
				cpu := time.Duration(p.CPU * float64(time.Second)).Round(10 * time.Millisecond)
				t.add(p.Pod, p.App, p.PID, p.Parent, p.State, cpu, size(p.Memory), p.Command)
			}
			return t
		})
	}
	return cmd
}

// selectedApp is an app that the command line names, with its pod.
type selectedApp struct {
	pod *view.Pod
	app *view.App
}

// selectPods returns the app or the apps of the pod that the command line names, or those of
// all pods.
func selectPods(e *Env, args []string) ([]selectedApp, error) {
	_, list, err := pods(e)
	if err != nil {
		return nil, err
	}
	var only *view.App
	if len(args) > 0 {
		p, a, err := view.Find(list, args[0])
		if err != nil {
			return nil, err
		}
		list, only = []*view.Pod{p}, a
	}
	var selected []selectedApp
	for _, p := range list {
		for i := range p.Apps {
			if only == nil || only == &p.Apps[i] {
				selected = append(selected, selectedApp{p, &p.Apps[i]})
			}
		}
	}
	return selected, nil
}

// perCent returns a share in per cent with one digit.
func perCent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }
