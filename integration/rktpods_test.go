package integration

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestATerminalOfAMutableImage(t *testing.T) { // checklist 12; section 9
	eachMutable(t, func(t *testing.T, n *rktNode) {
		script, sizes := "test -t 1 && echo it was a terminal", []string{"it was a terminal"}
		if n.fixture.version >= 6 { // of the other one nobody outside of the pod can find the terminal
			sizes = []string{"it was 31 97", "it was 40 100"}
			script = `test -t 1 || exit 1
for size in "31 97" "40 100"; do until [ "$(stty size)" = "$size" ]; do sleep 0.1; done; echo "it was $size"; done`
		}
		container := n.containerOf(t, n.client, n.column.image(t, n.client), n.runtime, n.id(), []string{"sh", "-c", script}, oci.WithTTY, oci.WithTTYSize(97, 31))
		ctx := n.context(t)
		var out bytes.Buffer
		task, err := container.NewTask(ctx, cio.NewCreator(cio.WithStreams(nil, &out, nil), cio.WithTerminal, cio.WithFIFODir(n.fifoDir(nil))))
		if err != nil {
			t.Fatal(err)
		}
		exit, err := task.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the terminal has got its second size", func() (bool, string) {
			if err := task.Resize(ctx, 100, 40); err != nil {
				return strings.Contains(err.Error(), "not found"), err.Error()
			}
			st, err := task.Status(ctx)
			return err == nil && st.Status == "stopped", string(st.Status)
		})
		expectExit(t, exit, 0)
		deleteTask(t, ctx, task)
		if err := container.Delete(ctx); err != nil {
			t.Error(err)
		}
		for _, want := range sizes {
			if !strings.Contains(out.String(), want) {
				t.Errorf("output %q", out.String())
			}
		}
		n.expectNothingLeft(t)
	})
}

// With a pause container: see the next test.
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
				ctx, cancel := context.WithTimeout(t.Context(), patience)
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

// A pod of the Sandbox service has a PID namespace, which these images have not. Nobody
// is asked to clear up after it is refused.
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
