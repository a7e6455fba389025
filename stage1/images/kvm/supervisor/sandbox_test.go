package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// podOf returns the request of `run` for a pod with namespaces of its own.
func podOf(kinds ...string) *abi.Request {
	r := &abi.Request{Sandbox: &abi.Sandbox{Hostname: "h", Sysctl: map[string]string{"net.ipv4.ip_forward": "1", "kernel.sem": "1 2 3 4"}}}
	for _, k := range kinds {
		r.Sandbox.Namespaces = append(r.Sandbox.Namespaces, abi.Namespace{Type: k})
	}
	return r
}

func TestASandboxThatAMachineCannotBeIsRefusedByName(t *testing.T) {
	joins := podOf("network", "uts", "ipc", "pid")
	joins.Sandbox.Namespaces[2].Path = "/proc/1/ns/ipc"
	for why, r := range map[string]*abi.Request{
		`without "network"`:               podOf("uts", "ipc", "pid"),
		`without "uts"`:                   podOf("network", "ipc", "pid"),
		`without "ipc"`:                   podOf("network", "uts", "pid"),
		`without "pid"`:                   podOf("network", "uts", "ipc"),
		`sandbox.namespaces[4].type`:      podOf("network", "uts", "ipc", "pid", "time"),
		`without sandbox.uidMappings`:     podOf("network", "uts", "ipc", "pid", "user"),
		`sandbox.namespaces[2].path: a m`: joins,
	} {
		if _, err := NewSandbox(r); serve.CodeOf(err) != abi.ExitNotImplemented || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v (%d)", why, err, serve.CodeOf(err))
		}
	}
	if s, err := NewSandbox(&abi.Request{}); s != nil || err != nil {
		t.Errorf("a pod that is no sandbox: %v, %v", s, err)
	}
}

// containerd has made the user namespace of the pod on the host. The machine makes one with the same mappings.
func TestASandboxHasTheUserNamespaceOfItsMachine(t *testing.T) {
	pod, ids := podOf("uts", "network", "ipc", "pid", "user"), []abi.IDMapping{{HostID: 1000, Size: 10}}
	pod.Sandbox.Namespaces[4].Path = "/proc/self/ns/user"
	pod.Sandbox.UIDMappings, pod.Sandbox.GIDMappings = ids, ids
	s, err := NewSandbox(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := []abi.Namespace{{Type: "uts"}, {Type: "ipc"}, {Type: "pid"}, {Type: "user", Path: channel.GuestUser}, {Type: "network", Path: channel.GuestNetwork}}
	if !reflect.DeepEqual(s.inside.Namespaces, want) || !reflect.DeepEqual(s.users, &channel.Mappings{UIDs: ids, GIDs: ids}) {
		t.Errorf("the machine is told of %+v, and of the mappings %v", s.inside.Namespaces, s.users)
	}
	if pod.Sandbox.Namespaces[4].Path != "/proc/self/ns/user" {
		t.Error("the request of stage 0 has changed")
	}
}

func TestTheLeaderOfASandboxIsTheProxyOfItsHolder(t *testing.T) {
	pod := podOf("network", "uts", "ipc", "pid")
	pod.Sandbox.Namespaces[0].Path = "/proc/self/ns/net"
	sandbox, err := NewSandbox(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := abi.Sandbox{Hostname: "h", Namespaces: []abi.Namespace{{Type: "uts"}, {Type: "ipc"}, {Type: "pid"}}, Sysctl: map[string]string{"kernel.sem": "1 2 3 4"}}
	if !reflect.DeepEqual(*sandbox.inside, want) || sandbox.sysctl["net.ipv4.ip_forward"] != "1" {
		t.Errorf("the machine is told of %+v and %v", *sandbox.inside, sandbox.sysctl)
	}
	w := newWorldOf(t, sandbox)
	ready, err := w.s.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/proc/%d/ns/", ready.PID)
	if same, err := w.s.Network.netns.Is(path + "net"); err != nil || !same {
		t.Errorf("the proxy is not in the network of the machine: %v", err)
	}
	var inGuest specs.Spec
	w.guest.on(abi.AppAdd, func(s *channel.Stream, h *channel.Header) {
		if err := json.Unmarshal(h.Call.Spec, &inGuest); err != nil {
			t.Error(err)
		}
		succeed(s, h)
	})
	r := with(t, func(s *specs.Spec) {
		s.Linux.Namespaces[0].Path, s.Linux.Namespaces[4].Path = path+"pid", path+"net"
	})
	if err := w.call(context.Background(), &abi.Request{Entrypoint: abi.AppAdd, App: "a", Spec: r.Spec}, null(t)); err != nil {
		t.Fatal(err)
	}
	if got := inGuest.Linux.Namespaces[0].Path; got != "/proc/7/ns/pid" { // 7 is every pid in these tests
		t.Errorf("the app joins %s", got)
	}
	if err := unix.Kill(ready.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the proxy has ended", func() bool { _, err := os.Stat(path); return err != nil })
}

func TestSysctlsOfTheNetworkAreTheMachines(t *testing.T) {
	w := newWorld(t)
	var told *channel.Header
	w.guest.on(abi.AppAdd, func(s *channel.Stream, h *channel.Header) {
		told = h
		succeed(s, h)
	})
	r := with(t, func(s *specs.Spec) {
		s.Linux.Sysctl = map[string]string{"net/ipv4/ip_forward": "1", "net.core.somaxconn": "7", "kernel.sem": "1 2 3 4"}
	})
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppAdd, App: "a", Spec: r.Spec}, null(t)); err != nil {
		t.Fatal(err)
	}
	var inGuest specs.Spec
	if err := json.Unmarshal(told.Call.Spec, &inGuest); err != nil {
		t.Fatal(err)
	}
	if len(inGuest.Linux.Sysctl) != 1 || inGuest.Linux.Sysctl["kernel.sem"] == "" || len(told.Sysctl) != 2 {
		t.Errorf("the app has %v, the machine %v", inGuest.Linux.Sysctl, told.Sysctl)
	}
}
