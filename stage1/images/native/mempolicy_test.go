package main

import (
	"os"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// The kernel shows the policy of a process with each of its mappings.
func TestTheMemoryPolicyIsThatOfAppsAndExecs(t *testing.T) {
	if _, err := os.Stat("/proc/self/numa_maps"); err != nil {
		t.Skip("this kernel has no memory policies")
	}
	static := []specs.MemoryPolicyFlagType{specs.MpolFStaticNodes}
	for _, c := range []struct {
		policy *specs.LinuxMemoryPolicy
		shown  string
	}{
		{nil, " default "},
		{&specs.LinuxMemoryPolicy{Mode: specs.MpolBind, Nodes: "0"}, " bind:0 "},
		{&specs.LinuxMemoryPolicy{Mode: specs.MpolInterleave, Nodes: "0", Flags: static}, " interleave=static:0 "},
		{&specs.LinuxMemoryPolicy{Mode: specs.MpolPreferred}, " local "},
		{&specs.LinuxMemoryPolicy{Mode: specs.MpolLocal}, " local "},
	} {
		p := startPod(t)
		r := p.request("web", "sh", "-c", "cat /proc/self/numa_maps; exec sleep 1000")
		respec(t, &r, func(s *specs.Spec) { s.Linux.MemoryPolicy = c.policy })
		out, stdout := pipe(t)
		p.add(r, nil, stdout)
		p.expect(0, abi.AppStart, "web")
		expectPolicy(t, "the app", out, c.shown)
		out, stdout = pipe(t)
		if a := p.enter("web", "e", [3]*os.File{nil, stdout}, "cat", "/proc/self/numa_maps"); a.code != 0 {
			t.Fatalf("enter: %d %s", a.code, a.text)
		}
		expectPolicy(t, "the exec", out, c.shown)
	}
}

func expectPolicy(t *testing.T, who string, out *os.File, want string) {
	t.Helper()
	buf := make([]byte, 128)
	n, err := out.Read(buf)
	line, _, _ := strings.Cut(string(buf[:n]), "\n")
	if err != nil || !strings.Contains(line+" ", want) {
		t.Errorf("%s has %q (%v), want %q", who, line, err, want)
	}
}

func TestAMemoryPolicyThatTheKernelRefusesFailsTheCall(t *testing.T) {
	unknown := []specs.MemoryPolicyFlagType{"MPOL_F_NONE"}
	for _, c := range []struct {
		policy specs.LinuxMemoryPolicy
		want   string
	}{
		{specs.LinuxMemoryPolicy{}, `linux.memoryPolicy.mode: ""`},
		{specs.LinuxMemoryPolicy{Mode: specs.MpolLocal, Flags: unknown}, `linux.memoryPolicy.flags: "MPOL_F_NONE"`},
		{specs.LinuxMemoryPolicy{Mode: specs.MpolBind, Nodes: "0-"}, `linux.memoryPolicy.nodes: "0-"`},
		{specs.LinuxMemoryPolicy{Mode: specs.MpolBind}, "linux.memoryPolicy: invalid argument"},
		{specs.LinuxMemoryPolicy{Mode: specs.MpolBind, Nodes: "1000"}, "linux.memoryPolicy: invalid argument"},
	} {
		p := startPod(t)
		r := p.request("web", "true")
		respec(t, &r, func(s *specs.Spec) { s.Linux.MemoryPolicy = &c.policy })
		if a := p.call(abi.AppAdd, entrypoint{request: r}); a.code == 0 || !strings.Contains(a.text, c.want) {
			t.Errorf("%+v: code %d, %s, want %s", c.policy, a.code, a.text, c.want)
		}
	}
}
