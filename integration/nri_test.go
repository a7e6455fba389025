package integration

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// refusing is an NRI plugin that refuses every pod after its sandbox was started.
type refusing struct{ refused int }

func (r *refusing) RunPodSandbox(context.Context, *api.PodSandbox) error {
	r.refused++
	return errors.New("this plugin refuses every pod")
}

// When an NRI plugin refuses a running pod, containerd kills the pod's sandbox, and two of its
// parts delete it at once: the one that made it and the one that watches its exit. critest has
// this case in releases after 1.36.
func TestAPodThatAPluginRefusesLeavesNothing(t *testing.T) {
	needOurs(t)
	for _, d := range newDropIns[:2] {
		t.Run(d.sandboxer, func(t *testing.T) {
			n := newStage1Node(t, d, "")
			plugin := &refusing{}
			connected, err := stub.New(plugin, stub.WithPluginName("refusing"), stub.WithPluginIdx("00"),
				stub.WithSocketPath(filepath.Join(n.Dir(), "nri.sock")))
			if err != nil {
				t.Fatal(err)
			}
			if err := connected.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { connected.Stop(); connected.Wait() })
			const tries = 12
			for range tries {
				if _, err := n.runPod(n.config(nil)); err == nil || !strings.Contains(err.Error(), "this plugin refuses every pod") {
					t.Errorf("the plugin's refusal is answered: %v", err)
				}
			}
			if plugin.refused != tries {
				t.Errorf("the plugin was asked %d times, want %d", plugin.refused, tries)
			}
			left, err := n.runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
			if err != nil || len(left.GetItems()) > 0 {
				t.Errorf("pods are left: %v, %v", left.GetItems(), err)
			}
			n.expectNothing("the last pod")
		})
	}
}
