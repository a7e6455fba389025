package hold_test

import (
	"encoding/json"
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/hold"
)

func TestAHolderHasNothingButTheNamespacesThatWereAskedFor(t *testing.T) {
	few := []abi.IDMapping{{ContainerID: 0, HostID: 1000, Size: 1}, {ContainerID: 5000, HostID: 2000, Size: 10}, {ContainerID: 7, HostID: 7, Size: 0}}
	maps := []abi.IDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}}
	for name, c := range map[string]struct {
		s        abi.Sandbox
		proc     bool
		mapped   bool
		uid, gid uint32
	}{
		"of its own":        {abi.Sandbox{Namespaces: []abi.Namespace{{Type: "pid"}, {Type: "network", Path: "/run/netns/x"}}}, true, false, 65535, 65535},
		"the host's":        {abi.Sandbox{}, true, false, 65535, 65535},
		"new user":          {abi.Sandbox{Namespaces: []abi.Namespace{{Type: "user"}, {Type: "pid"}}, UIDMappings: maps, GIDMappings: maps}, true, true, 65535, 65535},
		"joined user":       {abi.Sandbox{Namespaces: []abi.Namespace{{Type: "user", Path: "/x"}, {Type: "pid"}}, UIDMappings: maps}, true, true, 65535, 0},
		"user without pids": {abi.Sandbox{Namespaces: []abi.Namespace{{Type: "user", Path: "/x"}}}, false, false, 0, 0},
		"few users":         {abi.Sandbox{Namespaces: []abi.Namespace{{Type: "user"}}, UIDMappings: few, GIDMappings: few[:1]}, false, true, 5009, 0},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(hold.Spec("/root", &c.s, "", "/box"))
			if err != nil {
				t.Fatal(err)
			}
			var spec specs.Spec
			if err := json.Unmarshal(text, &spec); err != nil {
				t.Fatal(err)
			}
			if got := len(spec.Linux.Namespaces); got != len(c.s.Namespaces)+1 {
				t.Errorf("%d namespaces", got)
			}
			hasProc := slices.ContainsFunc(spec.Mounts, func(m specs.Mount) bool { return m.Type == "proc" })
			if hasProc != c.proc || (len(spec.Linux.UIDMappings) > 0) != c.mapped {
				t.Errorf("proc %v, mappings %v", hasProc, spec.Linux.UIDMappings)
			}
			if u := spec.Process.User; u.UID != c.uid || u.GID != c.gid {
				t.Errorf("user %d:%d, want %d:%d", u.UID, u.GID, c.uid, c.gid)
			}
			if guarded := len(spec.Linux.MaskedPaths) > 0 && slices.Contains(spec.Linux.ReadonlyPaths, "/proc/sys"); guarded != c.proc {
				t.Errorf("masked %q, read-only %q", spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths)
			}
			if hold.WithoutProc(&spec); len(spec.Mounts) != 1 || len(spec.Linux.MaskedPaths)+len(spec.Linux.ReadonlyPaths) > 0 {
				t.Errorf("without /proc: mounts %v, masked %q, read-only %q", spec.Mounts, spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths)
			}
			if !spec.Root.Readonly || !spec.Process.NoNewPrivileges || len(spec.Process.Capabilities.Bounding) > 0 {
				t.Errorf("it may do too much: %s", text)
			}
		})
	}
}
