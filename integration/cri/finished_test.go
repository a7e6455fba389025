package cri

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// mostFinished is the highest accepted PSS of a finished pod in bytes, as its container has made no execs.
const mostFinished = 3e6

// TestAFinishedPodKeepsNothingButItsServer makes pods whose container has ended, as Jobs leave them until somebody deletes
// them: of the pod only the server remains, with little memory, and the lists show that the pod has stopped.
func TestAFinishedPodKeepsNothingButItsServer(t *testing.T) {
	if why := missing(); why != "" {
		t.Skip(why)
	}
	handlers := []node.Handler{
		{Name: "native", Runtime: nativeRuntime, Sandboxer: "shim"},
		{Name: "oci", Runtime: ociRuntime, Sandboxer: "shim"},
		{Name: "nspawn", Runtime: nspawnRuntime, Sandboxer: "shim"},
	}
	c := &column{name: "finished", number: len(suiteColumns) + 2, handler: handlers[0], beside: handlers[1:]}
	c.open(t)
	t.Cleanup(func() { c.cleanUp(t) })
	number := 3
	if os.Getenv("RKT_TEST_LONG") != "" {
		number = 100
	}
	for i, h := range handlers {
		if _, err := exec.LookPath("systemd-nspawn"); err != nil && h.Runtime == nspawnRuntime {
			continue
		}
		t.Run(h.Name, func(t *testing.T) {
			of := *c
			of.handler, of.serial = h, 1000*i
			of.finish(t, number)
		})
	}
}

func (c *column) finish(t *testing.T, number int) {
	var pods []*pod
	var jobs []*container
	for range number {
		p := c.pod(t)
		job := p.run("job", sh("exit 3"))
		job.expectExit(3)
		p.stop()
		pods, jobs = append(pods, p), append(jobs, job)
	}
	field := "Pss_Anon" // the pages of the program are those of all servers, and these are few
	if number >= 100 {
		field = "Pss"
	}
	wait.Observe(t, "the servers of the finished pods are at rest", func() (bool, string) {
		var total int
		for _, p := range pods {
			total += rollup(t, p.shim(), field)
		}
		each := float64(total) / float64(number)
		t.Logf("%d finished pods have %.2f MB each (%s)", number, each/1e6, field)
		return each <= mostFinished, fmt.Sprintf("%.0f bytes each", each)
	})
	c.areFinished(t, pods, jobs)
	if err := c.node.Stop(); err != nil {
		t.Error(err)
	}
	c.again(t)
	c.areFinished(t, pods, jobs)
	for _, p := range pods {
		p.stop() // a second time
	}
}

// areFinished checks what the lists say, and that the pods have no process but their servers.
func (c *column) areFinished(t *testing.T, pods []*pod, jobs []*container) {
	t.Helper()
	var listed []struct{ Sandbox, State string }
	cmd := exec.Command(filepath.Join(shimsDir, "rktctl"), "list", "--output", "json")
	cmd.Env = append(os.Environ(), "RKT_DATA_DIR="+c.dataDir())
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &listed)
	}
	if err != nil {
		t.Fatalf("rktctl list: %v: %s", err, out)
	}
	states := map[string]string{}
	for _, p := range listed {
		states[p.Sandbox] = p.State
	}
	for i, p := range pods {
		if states[p.id] != "exited" {
			t.Errorf("rktctl list says that pod %s is %q", p.id, states[p.id])
		}
		p.expectState(runtimeapi.PodSandboxState_SANDBOX_NOTREADY)
		jobs[i].expectExit(3)
		if children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.shim())); err != nil || len(children) > 0 {
			t.Errorf("the server has children: %q, %v", children, err)
		}
	}
}

// rollup returns a field of a process's smaps_rollup in bytes.
func rollup(t *testing.T, pid int, field string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\n"+field+":")
	kb, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return kb << 10
}
