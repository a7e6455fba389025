package integration

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// The stage1 oci declares what the runc below it can do. The first pod asks; later ones call
// the entrypoints that they always did. requirements.md#O5
func TestACurrentRuncIsDeclaredToDoWhatItCan(t *testing.T) {
	eachOf(t, []string{"oci"}, func(t *testing.T, c *column) {
		if c.wraps != "" && c.wraps != currentRunc {
			t.Skip("the answer is of runc only")
		}
		current := c.wraps == currentRunc
		if got := c.features(t).Linux.MountExtensions.IDMap.Enabled; *got != current {
			t.Errorf("idmap mounts are declared: %t", *got)
		}
		domain := func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
			s.Domainname = "example.org"
			return nil
		}
		for range 2 {
			task, err := c.container(t, []string{"testprog", "sleep", "1000"}, domain).NewTask(c.context(t), cio.NullIO)
			if !current {
				if err == nil || !strings.Contains(err.Error(), "asks for /domainname, which stage1 oci") {
					t.Errorf("with a runc that does not know it: %v", err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			c.expectOneDomain(t, task)
		}
	})
}

// expectOneDomain starts and ends a container, and looks at its domain and journal.
func (c *column) expectOneDomain(t *testing.T, task containerd.Task) {
	t.Helper()
	exited := c.wait(t, task)
	if err := task.Start(c.context(t)); err != nil {
		t.Fatal(err)
	}
	c.exec(t, nil, task.ID(), "cat", "/proc/sys/kernel/domainname").must(t).mustSay(t, "example.org\n")
	dir, _ := c.pod(t, task.ID())
	if text := read(t, filepath.Join(dir, "journal")); strings.Contains(text, "features/probe") {
		t.Errorf("after -info has asked, the pod asks again: %s", text)
	}
	kill(t, c.context(t), task, syscall.SIGKILL)
	expectExit(t, exited, 137)
	c.drop(t, task)
}

// The first pod executes features/probe, which executes runc. Later pods execute neither.
// requirements.md#O5
func TestLaterPodsExecuteNothingToLearnWhatRuncCanDo(t *testing.T) {
	eachOf(t, []string{"oci"}, func(t *testing.T, c *column) {
		if c.wraps != "" {
			t.Skip("the answer is of runc only")
		}
		stage1 := "asked" + c.id()
		if err := binaries.Wrap(t.Context(), suite.shims, stage1, "runc"); err != nil {
			t.Fatal(err)
		}
		runtime, trace := traced(t, "containerd-shim-rkt-"+stage1+"-v1")
		for pod, want := range []int{1, 0, 0} {
			c.ctr(t, "run", "--rm", "--runtime", runtime, "--fifo-dir", c.fifoDir(nil), image.BusyboxName, c.id(), "true").must(t)
			c.expectNothingLeft(t)
			calls, err := trace.Next()
			if err != nil {
				t.Fatal(err)
			}
			var asked, answered int
			for _, call := range calls {
				switch {
				case !strings.HasPrefix(call.Name, "exec") || call.Failed():
				case strings.Contains(call.Args, "/features_probe"):
					asked++
				case strings.Contains(call.Args, `"features"`):
					answered++
				}
			}
			if asked != want || answered != want {
				t.Errorf("pod %d has executed features/probe %d times and runc features %d times, want %d", pod, asked, answered, want)
			}
		}
	})
}
