package supervisor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// tmpfs mounts a tmpfs of a MiB.
func tmpfs(t *testing.T, name string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount(name, dir, "tmpfs", unix.MS_NOSUID, "mode=1777,size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestTheSharedMemoryOfAPodIsMountedInTheMachine(t *testing.T) {
	w := newWorld(t)
	headers := make(chan *channel.Header, 1)
	w.guest.on(abi.AppAdd, func(s *channel.Stream, h *channel.Header) {
		headers <- h
		succeed(s, h)
	})
	dir := tmpfs(t, "shm")
	link := filepath.Join(t.TempDir(), "shm")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for app, source := range map[string]string{"first": dir, "second": link} {
		r := with(t, func(s *specs.Spec) {
			s.Mounts = []specs.Mount{{Destination: "/dev/shm", Type: "bind", Source: source, Options: []string{"rbind"}}}
		})
		if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppAdd, App: app, Spec: r.Spec}, null(t)); err != nil {
			t.Fatal(err)
		}
		h := <-headers
		var s specs.Spec
		if err := json.Unmarshal(h.Call.Spec, &s); err != nil {
			t.Fatal(err)
		}
		if h.Shm == nil || h.Shm.Size != 1<<20 || h.Shm.Mode != 0o1777 || s.Mounts[0].Source != h.Shm.Path || !strings.HasPrefix(h.Shm.Path, channel.GuestShm+"/") {
			t.Fatalf("app %s: the agent has got %+v, and the mounts %+v", app, h.Shm, s.Mounts)
		}
		paths = append(paths, h.Shm.Path)
	}
	if paths[0] != paths[1] {
		t.Errorf("the apps share nothing: %q", paths)
	}
}

func TestAVolumeAtDevShmIsTheHosts(t *testing.T) {
	full, parent := tmpfs(t, "shm"), tmpfs(t, "shm")
	below := filepath.Join(parent, "below")
	if err := os.WriteFile(filepath.Join(full, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]specs.Mount{
		"a volume in memory, of Kubernetes": {Destination: "/dev/shm", Source: tmpfs(t, "tmpfs")},
		"one with a file":                   {Destination: "/dev/shm", Source: full},
		"a directory of it":                 {Destination: "/dev/shm", Source: below},
		"no tmpfs":                          {Destination: "/dev/shm", Source: t.TempDir()},
		"the host's":                        {Destination: "/dev/shm", Source: "/dev/shm"},
		"another place":                     {Destination: "/shm", Source: tmpfs(t, "shm")},
	} {
		m.Type = "bind"
		s, binds, err := translate(with(t, func(s *specs.Spec) { s.Mounts = []specs.Mount{m} }), "dir", nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s.shm != nil || len(binds) != 2 {
			t.Errorf("%s: the machine has %+v in its place", name, s.shm)
		}
		closeBinds(binds)
	}
}
