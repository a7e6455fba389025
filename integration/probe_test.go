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
