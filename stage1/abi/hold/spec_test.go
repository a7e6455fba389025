package hold_test

import (
	"encoding/json"
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi/hold"
)

func TestAHolderHasNothingButTheNamespacesThatWereAskedFor(t *testing.T) {
	maps := []abi.IDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}}
	for name, c := range map[string]struct {
		s      abi.Sandbox
		proc   bool
		mapped bool
	}{
		"of its own":        {abi.Sandbox{Namespaces: []abi.Namespace{{Type: "pid"}, {Type: "network", Path: "/run/netns/x"}}}, true, false},
		"the host's":        {abi.Sandbox{}, true, false},
		"new user":          {abi.Sandbox{Namespaces: []abi.Namespace{{Type: "user"}, {Type: "pid"}}, UIDMappings: maps, GIDMappings: maps}, true, true},
		"joined user":       {abi.Sandbox{Namespaces: []abi.Namespace{{Type: "user", Path: "/x"}, {Type: "pid"}}, UIDMappings: maps}, true, true},
		"user without pids": {abi.Sandbox{Namespaces: []abi.Namespace{{Type: "user", Path: "/x"}}}, false, false},
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
			if !spec.Root.Readonly || !spec.Process.NoNewPrivileges || len(spec.Process.Capabilities.Bounding) > 0 || spec.Linux.Seccomp == nil {
				t.Errorf("it may do too much: %s", text)
			}
		})
	}
}
