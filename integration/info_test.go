package integration

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"
)

// features returns the output of `-info`, as containerd reads it.
func (c *column) features(t *testing.T) *features.Features {
	t.Helper()
	if c.release.old {
		t.Skip("containerd asks for features from 2.0 on")
	}
	info, err := c.client.RuntimeInfo(c.context(t), c.runtime, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, ok := info.Features.(*features.Features)
	if !ok || f.Linux == nil {
		t.Fatalf("features are %v", info.Features)
	}
	if c.name != "runc" && (info.Name != c.runtime || info.Annotations["io.containerd.rkt.v1/stage1"] != cmp.Or(c.wraps, c.name)) {
		t.Errorf("the runtime calls itself %s, with %v", info.Name, info.Annotations)
	}
	return f
}

// CRI offers recursively read-only mounts to pods if the runtime declares them.
// requirements.md#O5
func TestRecursivelyReadOnlyMountsAreWhatInfoSays(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		if !slices.Contains(c.features(t).MountOptions, "rro") {
			t.Fatal("rro is not among the mount options")
		}
		dir := t.TempDir()
		below := filepath.Join(dir, "below")
		if err := os.Mkdir(below, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", below, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(below, syscall.MNT_DETACH) })
		for option, want := range map[string]string{"ro": "written\n", "rro": "refused\n"} {
			r := c.run(t, []string{"--rm", "--mount", "type=bind,src=" + dir + ",dst=/mnt,options=rbind:" + option}, c.id(),
				"sh", "-c", "{ touch /mnt/below/file && echo written || echo refused; } 2>/dev/null")
			r.must(t).mustSay(t, want)
		}
	})
}

// CRI offers user namespaces if the runtime declares both user namespaces and id-mapped mounts.
// The streams of a process in a user namespace belong to the user that the options name.
// Otherwise the process could not open them again (requirements.md#I6).
// requirements.md#O5
func TestUserNamespacesAndIDMappedMountsAreWhatInfoSays(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		linux := c.features(t).Linux
		if !slices.Contains(linux.Namespaces, "user") {
			if c.name == "nspawn" {
				t.Skip("it declares none, and refuses the mappings: TestNspawnRefusesWhatItCannotMake")
			}
			t.Fatal("user is not among the namespaces")
		}
		const base, size = 100_000, 65_536
		ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: base, Size: size}}
		script := "cat /proc/self/uid_map; stat -L -c '%u:%g' /proc/self/fd/1; echo again > /proc/self/fd/1"
		want := []string{"0", fmt.Sprint(base), fmt.Sprint(size), "0:0", "again"}
		mapped := []oci.SpecOpts{oci.WithUserNamespace(ids, ids)}
		if x := linux.MountExtensions; x != nil && x.IDMap != nil && x.IDMap.Enabled != nil && *x.IDMap.Enabled {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "file"), "root's on the host\n")
			mapped = append(mapped, oci.WithMounts([]specs.Mount{{
				Type: "bind", Source: dir, Destination: "/mnt", Options: []string{"bind", "ro"}, UIDMappings: ids, GIDMappings: ids,
			}}))
			script += "; stat -c '%u:%g' /mnt/file"
			want = append(want, "0:0")
		} else if !c.usesRunc() {
			t.Error("id-mapped mounts are not enabled")
		}

		ctx, id, img := c.context(t), c.id(), c.image(t, c.client)
		spec := append([]oci.SpecOpts{oci.WithImageConfig(img), oci.WithProcessArgs("sh", "-c", script)}, mapped...)
		container, err := c.client.NewContainer(ctx, id, containerd.WithUserNSRemappedSnapshot(id, img, ids, ids),
			containerd.WithNewSpec(spec...), containerd.WithRuntime(c.runtime, nil))
		if err != nil {
			t.Fatal(err)
		}
		var out streams
		task, err := container.NewTask(ctx, out.creator(c, nil), containerd.WithUIDOwner(base), containerd.WithGIDOwner(base))
		if err != nil {
			t.Fatal(err)
		}
		exited := c.wait(t, task)
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 0)
		deleteTask(t, ctx, task)
		if got := strings.Fields(out.stdout.String()); !slices.Equal(got, want) {
			t.Errorf("it says %q, want %q; stderr %q", got, want, out.stderr.String())
		}
	})
}

// Every declared hook is run, with the container's state.
// requirements.md#O5
func TestHooksAreWhatInfoSays(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		declared := c.features(t).Hooks
		dir := t.TempDir()
		task := c.running(t, []string{"true"}, oci.WithMounts([]specs.Mount{{
			Type: "bind", Source: dir, Destination: dir, Options: []string{"rbind", "rw"},
		}}), func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
			hook := func(name string) []specs.Hook {
				if !slices.Contains(declared, name) {
					return nil
				}
				return []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "cat > " + filepath.Join(dir, name)}}}
			}
			s.Hooks = &specs.Hooks{
				Prestart: hook("prestart"), CreateRuntime: hook("createRuntime"), CreateContainer: hook("createContainer"),
				StartContainer: hook("startContainer"), Poststart: hook("poststart"), Poststop: hook("poststop"),
			}
			return nil
		})
		expectExit(t, c.wait(t, task), 0)
		deleteTask(t, c.context(t), task)
		for _, name := range declared {
			if state := read(t, filepath.Join(dir, name)); !strings.Contains(state, `"id":"`+task.ID()+`"`) {
				t.Errorf("hook %s was given %q", name, state)
			}
		}
	})
}

// If seccomp is declared, a call that a filter forbids is refused.
// requirements.md#O5
func TestSeccompIsWhatInfoSays(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		s := c.features(t).Linux.Seccomp
		if s == nil || s.Enabled == nil || !*s.Enabled || !slices.Contains(s.Actions, "SCMP_ACT_ERRNO") {
			t.Fatalf("seccomp is %+v", s)
		}
		c.run(t, []string{"--rm", "--seccomp"}, c.id(), "testprog", "keyring").must(t).mustSay(t, "forbidden\n")
	})
}
