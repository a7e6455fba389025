package integration

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

func TestATerminalOfAMutableImage(t *testing.T) { // checklist 12; section 9
	eachMutable(t, func(t *testing.T, n *rktNode) {
		if n.fixture.version >= 6 {
			n.hasTerminals(t)
		} else { // outside of the pod no process can find the terminal to set its size
			term := newTerminal(t, 31, 97)
			ended := n.atTerminal(t, term, n.runArgs([]string{"--rm", "--tty"}, n.id(), "sh", "-c", "test -t 1 && echo it was a terminal; exit 5")...)
			term.await(t, "it was a terminal")
			if code := ended(); code != 5 {
				t.Errorf("exit code %d, want 5", code)
			}
		}
		n.expectNothingLeft(t)
	})
}

// The pod has a pause container. The next test is about pods without one.
func TestPodsOfKubernetesInAMutableImage(t *testing.T) { // checklist 3, 5, 7, 13
	needOurs(t)
	i := rktImage{version: 6, mutable: true, log: t.TempDir()}
	dir := i.install(t)
	for _, d := range newDropIns[:1] {
		t.Run(d.sandboxer, func(t *testing.T) {
			n := newStage1Node(t, d, "[stage1.mine]\npath = '"+dir+"'\naccept = ['appc']\npods_may_ask = true\n")
			config := n.config(map[string]string{stage1Annotation: "mine"})
			id, err := n.runPod(config)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"first", "second"} {
				if err := n.runContainer(id, config, name, nil); err != nil {
					t.Errorf("container %s: %v", name, err)
				}
			}
			list, err := n.runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range list.GetContainers() {
				ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
				r, err := n.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: c.GetId(), Cmd: []string{"echo", "inside"}})
				cancel()
				if err != nil || string(r.GetStdout()) != "inside\n" {
					t.Errorf("an exec in %s: %q, %v", c.GetMetadata().GetName(), r.GetStdout(), err)
				}
			}
			if got := len(list.GetContainers()); got != 2 {
				t.Errorf("%d containers", got)
			}
			n.removePod(id)
			n.expectNothing("the pod")
		})
	}
	if calls := read(t, i.log+"/calls"); strings.Contains(calls, "misused") || t.Failed() {
		t.Errorf("how the entrypoints were called:\n%s", calls)
	}
}

// A pod of the Sandbox service needs a PID namespace, which these images do not make. No client
// cleans up after the refusal.
func TestAPodThatIsNoSandboxIsRefusedAndLeavesNothing(t *testing.T) { // checklist 5, 13, 14
	needOurs(t)
	i := rktImage{version: 6, mutable: true, log: t.TempDir()}
	dir := i.install(t)
	write(t, filepath.Join(dir, "rootfs/litters"), "")
	n := newStage1Node(t, newDropIns[1], "[stage1.mine]\npath = '"+dir+"'\naccept = ['appc']\npods_may_ask = true\n")
	_, err := n.runPod(n.config(map[string]string{stage1Annotation: "mine"}))
	if want := `has no pid namespace of its own; a pod of it needs a pause container (sandboxer = "podsandbox")`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %q", err, want)
	}
	n.expectNothing("a pod that was refused")
	if running("sleep\x004717") {
		t.Error("what run has left lives")
	}
	if calls := read(t, i.log+"/calls"); !strings.Contains(calls, "mutable_run ") || strings.Contains(calls, "misused") {
		t.Errorf("how the entrypoints were called:\n%s", calls)
	}
}
