package cri

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
	"github.com/rkt/containerd-shim-rkt-v1/integration/machines"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// feature is a row of the document: a feature of pods, and the test that shows it.
type feature struct {
	name string
	test func(t *testing.T, c *column)
}

// section is a group of rows.
type section struct {
	name     string
	features []feature
}

// sections returns all rows, in their order.
func sections() []section {
	all := []section{pods(), namespaces(), security(), users(), volumes(), resources(), plugins(), streams(), lifecycle(), handling()}
	if unified() {
		all = append(all, version2())
	}
	return all
}

// TestFeatures tests every feature with every handler, the handlers in parallel.
func TestFeatures(t *testing.T) {
	if why := missing(); why != "" {
		t.Skip(why)
	}
	if machines.Only() {
		t.Skip("the handlers of machines have tests of their own")
	}
	for _, c := range suiteColumns {
		t.Run(c.name, func(t *testing.T) {
			if _, err := exec.LookPath("systemd-nspawn"); err != nil && c.isNspawn() {
				t.Skip("needs systemd-nspawn, of Debian's systemd-container (make deps)")
			}
			t.Parallel()
			c.open(t)
			for _, s := range sections() {
				features := c.selected(s)
				if len(features) == 0 {
					continue
				}
				t.Run(s.name, func(t *testing.T) {
					for _, f := range features {
						c.run(t, s.name, f)
					}
				})
			}
		})
	}
}

func TestTheFeaturesThatAreSelectedAreThere(t *testing.T) {
	for _, only := range [][]string{nspawnSelection(), currentSelection()} {
		c, found := column{only: only}, 0
		for _, s := range sections() {
			found += len(c.selected(s))
		}
		if found != len(only) {
			t.Errorf("of %q there are %d", only, found)
		}
	}
}

// column is a handler with the results of its tests.
type column struct {
	name    string
	handler node.Handler
	beside  []node.Handler // further handlers of its node
	systemd bool           // the driver of cgroups: systemd, or cgroupfs
	number  int
	env     []string // of the node
	node    *node.Node
	known   *leaks.Pods
	runtime internalapi.RuntimeService
	serial  int
	// only has the names of the features to test, if not all are tested.
	only    []string
	results results
	// blamed are remains for which a test has already failed.
	blamed []string
	// reason says why the current test was skipped, or has a remark on it.
	reason  string
	skipped bool
}

// selected returns the features of a section that are to be tested.
func (c *column) selected(s section) (features []feature) {
	for _, f := range s.features {
		if c.only == nil || slices.Contains(c.only, f.name) {
			features = append(features, f)
		}
	}
	return features
}

func (c *column) run(t *testing.T, section string, f feature) {
	c.reason, c.skipped = "", false
	passed := t.Run(f.name, func(t *testing.T) {
		t.Cleanup(func() { c.cleanUp(t) })
		f.test(t, c)
	})
	outcome := "yes"
	switch {
	case !passed:
		outcome = "**fails**"
	case c.skipped:
		outcome = "–"
	case c.reason != "":
		outcome = "no"
	}
	c.results.add(section, f.name, c.name, outcome, c.reason)
}

// skip ends a test that does not apply to the handler or the machine, and writes the reason
// into the document.
func (c *column) skip(t *testing.T, reason string) {
	t.Helper()
	c.reason, c.skipped = reason, true
	t.Skip(reason)
}

// remark writes a known limit of the handler into the document.
func (c *column) remark(reason string) { c.reason = reason }

func (c *column) isRunc() bool { return c.handler.Name == "runc" }

// usesRunc reports whether runc isolates the column's containers, by its own shim or by ours.
func (c *column) usesRunc() bool {
	return c.isRunc() || c.handler.Runtime == ociRuntime || c.handler.Runtime == currentRuntime
}

func (c *column) isMachine() bool { return c.handler.Runtime == machineRuntime }

func (c *column) isNspawn() bool { return c.handler.Runtime == nspawnRuntime }

// features returns the features that the handler has reported to containerd.
func (c *column) features(t *testing.T) *runtimeapi.RuntimeHandlerFeatures {
	t.Helper()
	status, err := c.runtime.Status(testContext(t), false)
	if err != nil {
		t.Fatalf("status: %v", err)
	}
	for _, h := range status.GetRuntimeHandlers() {
		if h.GetName() == c.handler.Name {
			return h.GetFeatures()
		}
	}
	t.Fatalf("CRI's status does not mention the handler %s", c.handler.Name)
	return nil
}

// cleanUp removes the pods that a test has left, and looks for remains of pods.
func (c *column) cleanUp(t *testing.T) {
	t.Helper()
	ctx := testContext(t)
	pods, err := c.runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		t.Errorf("list pods: %v", err)
		return
	}
	for _, p := range pods {
		if err := c.runtime.StopPodSandbox(ctx, p.GetId()); err != nil {
			t.Errorf("stop pod %s: %v", p.GetId(), err)
		}
		if err := c.runtime.RemovePodSandbox(ctx, p.GetId()); err != nil {
			t.Errorf("remove pod %s: %v", p.GetId(), err)
		}
	}
	c.expectNothingLeft(t)
	if t.Failed() {
		t.Logf("the daemon's log ends with:\n%s", c.node.LogTail(25))
	}
}

// expectNothingLeft fails the test for each thing that its pods have left.
func (c *column) expectNothingLeft(t *testing.T) {
	t.Helper()
	var left []string
	wait.Observe(t, "nothing of the pods is left", func() (bool, string) {
		found, err := c.remains()
		if err != nil {
			return false, err.Error()
		}
		left = slices.DeleteFunc(found, func(s string) bool { return slices.Contains(c.blamed, s) || c.forgiven(s) })
		return len(left) == 0, strings.Join(left, "\n\t")
	})
	c.blamed = append(c.blamed, left...)
}

// forgiven reports whether a remain is a known one. runc's shim leaves the sockets of pods
// whose shim was killed. On a slow machine containerd kills a `delete` that takes more than
// five seconds; a lock beside such a socket, or a pod's directory with its mounts, is then
// left. The next pods collect these remains; other tests, which do not depend on time, show
// that.
func (c *column) forgiven(remain string) bool {
	inSockets := strings.HasPrefix(remain, "file "+c.node.Shims()+"/")
	known := c.isRunc() && inSockets
	if wait.Slowness > 1 {
		ofPod := strings.Contains(remain, c.node.Pods()+"/") && !strings.HasPrefix(remain, "process ")
		known = known || ofPod || inSockets && strings.HasSuffix(remain, ".lock")
	}
	if known {
		c.blamed = append(c.blamed, remain)
	}
	return known
}

// port returns a port of the node that no other column uses.
func (c *column) port(n int) int { return 18000 + 100*c.number + n }

// dataDir is the data directory of our shim.
func (c *column) dataDir() string { return filepath.Dir(c.node.Pods()) }

// remains lists everything that is there in addition to the node itself.
func (c *column) remains() ([]string, error) {
	d := c.node.Dir()
	s := leaks.Scope{Dir: d, Namespace: strings.TrimPrefix(c.podsCgroup(), "/"), Except: []int{c.node.PID(), os.Getpid(), 1}, Empty: []string{
		c.node.Bundle(""),
		filepath.Join(d, "root/io.containerd.runtime.v2.task", node.Namespace),
		filepath.Join(d, "state/io.containerd.sandbox.controller.v1.shim", node.Namespace),
		filepath.Join(d, "state/io.containerd.grpc.v1.cri/containers"),
		filepath.Join(d, "state/io.containerd.grpc.v1.cri/sandboxes"),
		filepath.Join(d, "root/io.containerd.grpc.v1.cri/containers"),
		filepath.Join(d, "root/io.containerd.grpc.v1.cri/sandboxes"),
		filepath.Join(d, "state/io.containerd.grpc.v1.cri/netns"),
		c.node.Shims(),
	}}
	for _, state := range []string{"embryo", "prepare", "prepared", "run", "exited-garbage", "garbage"} {
		s.Empty = append(s.Empty, filepath.Join(c.node.Pods(), state))
	}
	var err error
	if s.Pods, err = c.known.Of(c.dataDir()); err != nil {
		return nil, err
	}
	found, err := s.Remains()
	if err != nil {
		return nil, err
	}
	interfaces, err := filepath.Glob("/sys/class/net/" + c.node.Bridge() + "/brif/*")
	for _, i := range interfaces {
		found = append(found, fmt.Sprintf("file %s", i))
	}
	return found, err
}
