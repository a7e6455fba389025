package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// hooked returns an app's request with a hook of a shell.
func hooked(t *testing.T, set func(*specs.Hooks, []specs.Hook), script string) *abi.Request {
	r := with(t, func(s *specs.Spec) {
		s.Hooks = &specs.Hooks{}
		set(s.Hooks, []specs.Hook{{Path: "/bin/sh", Args: []string{"hook", "-c", script}}})
	})
	return &abi.Request{Entrypoint: abi.AppAdd, App: "a", Container: "c", Spec: r.Spec}
}

func createRuntime(h *specs.Hooks, hooks []specs.Hook) { h.CreateRuntime = hooks }

func TestHooksOfTheHostGetAProxyInTheNetworkOfTheApp(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	var inGuest abi.RawJSON
	w.guest.on(abi.AppAdd, func(s *channel.Stream, h *channel.Header) {
		inGuest = h.Call.Spec
		succeed(s, h)
	})
	script := fmt.Sprintf(`cat > %[1]s/state; pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' %[1]s/state); readlink /proc/$pid/ns/net > %[1]s/net; pwd > %[1]s/cwd; env > %[1]s/env`, dir)
	if err := w.call(t.Context(), hooked(t, createRuntime, script), null(t)); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	var state specs.State
	if err := json.Unmarshal([]byte(read("state")), &state); err != nil {
		t.Fatal(err)
	}
	w.s.mu.Lock()
	proxy := w.s.apps["a"].main.proxy.PID()
	w.s.mu.Unlock()
	if state.ID != "c" || state.Status != specs.StateCreating || state.Pid != proxy {
		t.Errorf("the state is %+v, the proxy %d", state, proxy)
	}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if net := read("net"); net == "" || net == own {
		t.Errorf("the network of the proxy is %s, that of the host %s", net, own)
	}
	if cwd := read("cwd"); cwd != w.rootfs {
		t.Errorf("the hook ran in %s", cwd)
	}
	if strings.Contains(read("env"), "HOME=") {
		t.Errorf("the hook has the environment of the supervisor: %s", read("env"))
	}
	if strings.Contains(string(inGuest), "createRuntime") {
		t.Error("the machine is told of hooks of the host")
	}
}

func TestAProxyIsInTheNetworkThatTheAppNames(t *testing.T) {
	w := newWorld(t)
	w.add("first")
	w.s.mu.Lock()
	path := fmt.Sprintf("/proc/%d/ns/net", w.s.apps["first"].main.proxy.PID())
	w.s.mu.Unlock()
	of := func(pid int) string {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			t.Fatal(err)
		}
		return link
	}
	request := func(path string) *abi.Request {
		r := with(t, func(s *specs.Spec) { s.Linux.Namespaces[4].Path = path })
		return &abi.Request{Entrypoint: abi.AppAdd, App: "a", Spec: r.Spec}
	}
	if err := w.call(t.Context(), request("/proc/self/ns/net"), null(t)); serve.CodeOf(err) != abi.ExitNotImplemented || !strings.Contains(err.Error(), "host's network") {
		t.Errorf("the host's network: %v", err)
	}
	if err := w.call(t.Context(), request(path), null(t)); err != nil {
		t.Fatal(err)
	}
	w.s.mu.Lock()
	first, second := w.s.apps["first"].main.proxy.PID(), w.s.apps["a"].main.proxy.PID()
	w.s.mu.Unlock()
	if of(first) != of(second) {
		t.Errorf("the proxies are in %s and %s", of(first), of(second))
	}
}

func TestAFailedHookUndoesTheApp(t *testing.T) {
	w := newWorld(t)
	err := w.call(t.Context(), hooked(t, createRuntime, "echo no luck >&2; exit 3"), null(t))
	if err == nil || !strings.Contains(err.Error(), "createRuntime hook 0 (/bin/sh): exit status 3") || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("the error is %v", err)
	}
	if !w.guest.wasAsked(abi.AppStop) || !w.guest.wasAsked(abi.AppRm) {
		t.Error("the machine still has the app")
	}
	if n := len(w.s.Children.All()); n > 0 {
		t.Errorf("%d processes are left", n)
	}

	w = newWorld(t)
	if err := w.call(t.Context(), hooked(t, func(h *specs.Hooks, hooks []specs.Hook) { h.Poststart = hooks }, "exit 1"), null(t)); err != nil {
		t.Fatal(err)
	}
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppStart, App: "a"}, [3]*os.File{}); err == nil || !strings.Contains(err.Error(), "poststart hook 0") {
		t.Errorf("the error is %v", err)
	}
	if !w.guest.wasAsked(abi.AppStop) {
		t.Error("the app goes on after a failed hook")
	}
}

func TestAHookEndsWithItsTimeout(t *testing.T) {
	w := newWorld(t)
	one := 1
	r := with(t, func(s *specs.Spec) {
		s.Hooks = &specs.Hooks{Prestart: []specs.Hook{{Path: "/bin/sleep", Args: []string{"sleep", "1000"}, Timeout: &one}}} //nolint:staticcheck // clients still use it
	})
	err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppAdd, App: "a", Spec: r.Spec}, null(t))
	if err == nil || !strings.Contains(err.Error(), "timed out after 1s") {
		t.Errorf("the error is %v", err)
	}
}
