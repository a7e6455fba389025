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
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// feature is a row of the document: something that pods can have, and how to see
// that they do.
type feature struct {
	name string
	test func(t *testing.T, c *column)
}

// section is a group of rows.
type section struct {
	name     string
	features []feature
}

// sections are all rows, in their order.
func sections() []section {
	all := []section{pods(), namespaces(), security(), users(), volumes(), resources(), streams(), lifecycle(), handling()}
	if unified() {
		all = append(all, version2())
	}
	return all
}

// TestFeatures runs every feature with every handler, the handlers side by side.
func TestFeatures(t *testing.T) {
	if why := missing(); why != "" {
		t.Skip(why)
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

// column is a handler with what its tests have done.
type column struct {
	name    string
	handler node.Handler
	beside  []node.Handler // further ones of its node
	systemd bool           // the driver of cgroups: systemd, or cgroupfs
	number  int
	env     []string // of the node
	node    *node.Node
	known   *leaks.Pods
	runtime internalapi.RuntimeService
	serial  int
	// only are the names of the features to test, if they are not all.
	only    []string
	results results
	// blamed are remains that a test has already failed for.
	blamed []string
	// reason is why the current test was skipped, or what is to be said of it.
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

// skip ends a test that the handler or the machine has no use for, and says so in
// the document.
func (c *column) skip(t *testing.T, reason string) {
	t.Helper()
	c.reason, c.skipped = reason, true
	t.Skip(reason)
}

// remark says in the document what the handler does not do, and is known not to.
func (c *column) remark(reason string) { c.reason = reason }

func (c *column) isRunc() bool { return c.handler.Name == "runc" }

// usesRunc reports whether it is runc that isolates the column's containers, by its own
// shim or not.
func (c *column) usesRunc() bool {
	return c.isRunc() || c.handler.Runtime == ociRuntime || c.handler.Runtime == currentRuntime
}

func (c *column) isNspawn() bool { return c.handler.Runtime == nspawnRuntime }

// features are what the handler has told containerd about itself.
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

// cleanUp removes the pods that a test left, and looks for what they leave.
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

// expectNothingLeft fails the test for everything that its pods left.
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

// forgiven reports whether something that is left is known to be: runc's shim leaves
// the sockets of pods whose shim was killed. On a slow machine containerd kills a
// `delete` that takes more than its five seconds, with a lock beside such a socket or
// before a pod's directory is gone, with what is mounted there. The next pods collect
// it: that is tested where time does not decide.
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

// port is one of the node that no other column uses.
func (c *column) port(n int) int { return 18000 + 100*c.number + n }

// dataDir is where our pods are.
func (c *column) dataDir() string { return filepath.Dir(c.node.Pods()) }

// remains describes what is there beside the node itself.
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
