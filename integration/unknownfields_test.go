package integration

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"google.golang.org/protobuf/types/known/anypb"
)

// ofTomorrow makes a container whose spec has fields that no spec has, at several depths.
func (c *column) ofTomorrow(t *testing.T) containerd.Container {
	t.Helper()
	container := c.container(t, []string{"testprog", "sleep", "1000"})
	err := container.Update(c.context(t), func(_ context.Context, _ *containerd.Client, r *containers.Container) error {
		text := r.Spec.GetValue()
		for old, with := range map[string]string{
			`"process":{`: `"novel":{"depth":[1e-400]},"process":{"argz":["x"],`,
			`"user":{`:    `"user":{"colour":7,`,
			`"root":{`:    `"root":{"quota":1e400,`,
		} {
			text = bytes.Replace(text, []byte(old), []byte(with), 1)
		}
		r.Spec = &anypb.Any{TypeUrl: r.Spec.GetTypeUrl(), Value: text}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return container
}

func TestFieldsOfANewerSpecAreIgnoredAndNamed(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		container := c.ofTomorrow(t)
		task := c.newTask(t, container, cio.NullIO)
		exited := c.wait(t, task)
		if err := task.Start(c.context(t)); err != nil {
			t.Fatal(err)
		}
		dir, _ := c.pod(t, container.ID())
		records, _ := filepath.Glob(filepath.Join(dir, "appsinfo/*/app.json"))
		if len(records) != 1 {
			t.Fatalf("records %q", records)
		}
		for place, text := range map[string]string{
			"the log": read(t, c.daemon.LogPath()), "the journal": read(t, filepath.Join(dir, "journal")), "the record": read(t, records[0]),
		} {
			for _, field := range []string{"/novel", "/process/argz (is args meant?)", "/process/user/colour", "/root/quota"} {
				if !strings.Contains(text, field) {
					t.Errorf("%s does not name %s", place, field)
				}
			}
		}
		kill(t, c.context(t), task, syscall.SIGKILL)
		expectExit(t, exited, 137)
		c.drop(t, task)
	})
}

func TestTheConfigurationRefusesFieldsThatNoSpecHas(t *testing.T) {
	eachNode(t, "strict", func(t *testing.T, n *node) {
		n.says("refuse_unknown_fields = true\n")
		_, err := n.ofTomorrow(t).NewTask(n.context(t), cio.NullIO)
		if err == nil || !strings.Contains(err.Error(), "config.json has /novel, which the OCI runtime spec does not have") {
			t.Errorf("%v", err)
		}
		n.says("refuse_unknown_fields = true\n[stage1.native]\naccept = ['/novel', '/process/argz', '/process/user/colour', '/root/quota']\n")
		task := n.newTask(t, n.ofTomorrow(t), cio.NullIO)
		exited := n.wait(t, task)
		kill(t, n.context(t), task, syscall.SIGKILL)
		expectExit(t, exited, 137)
		n.drop(t, task)
	})
}
