package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	"github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/sandbox"
	"github.com/rkt/containerd-shim-rkt-v1/wire"
)

// sandboxBundle makes the bundle of a sandbox as containerd does, and returns it
// with CRI's two directories.
func sandboxBundle(t *testing.T) (bundle, root, state string) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"root", "state"} {
		if err := os.MkdirAll(filepath.Join(dir, d, "io.containerd.sandbox.controller.v1.shim/k8s.io/box"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	bundle = filepath.Join(dir, "state/io.containerd.sandbox.controller.v1.shim/k8s.io/box")
	if err := os.Symlink(filepath.Join(dir, "root/io.containerd.sandbox.controller.v1.shim/k8s.io/box"), filepath.Join(bundle, "work")); err != nil {
		t.Fatal(err)
	}
	cri := "io.containerd.grpc.v1.cri/sandboxes/box"
	return bundle, filepath.Join(dir, "root", cri), filepath.Join(dir, "state", cri)
}

// podConfig packs CRI's message as containerd does.
func podConfig(t *testing.T, c *sandbox.PodSandboxConfig) *anypb.Any {
	t.Helper()
	b, err := wire.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	return &anypb.Any{TypeUrl: sandbox.PodSandboxConfigName, Value: b}
}

// boxes is a client of the Sandbox service.
type boxes struct{ b *bench }

func (b *bench) sandboxes() boxes { return boxes{b} }

func ask[Response any](ctx context.Context, c boxes, method string, req any) (*Response, error) {
	resp := new(Response)
	ctx, cancel := context.WithTimeout(ctx, wait.Patience)
	defer cancel()
	return resp, wire.Call(ctx, c.b.client, sandbox.Service, method, req, resp)
}

func TestASandboxFromItsCreationToItsShutdown(t *testing.T) {
	b := newBench(t)
	ctx, box := t.Context(), b.sandboxes()
	bundle, _, _ := sandboxBundle(t)
	_, err := ask[sandbox.StartSandboxResponse](ctx, box, "StartSandbox", &sandbox.StartSandboxRequest{SandboxId: "box"})
	wantCode(t, err, codes.FailedPrecondition, "StartSandbox before CreateSandbox")
	create := &sandbox.CreateSandboxRequest{SandboxId: "box", BundlePath: bundle, NetnsPath: "/run/netns/x", Options: podConfig(t, &sandbox.PodSandboxConfig{Hostname: "blue"})}
	if _, err := ask[sandbox.CreateSandboxResponse](ctx, box, "CreateSandbox", create); err != nil {
		t.Fatal(err)
	}
	_, err = ask[sandbox.CreateSandboxResponse](ctx, box, "CreateSandbox", create)
	wantCode(t, err, codes.AlreadyExists, "a second CreateSandbox")
	_, err = ask[sandbox.CreateSandboxResponse](ctx, box, "CreateSandbox", &sandbox.CreateSandboxRequest{SandboxId: "box", BundlePath: "."})
	wantCode(t, err, codes.AlreadyExists, "a second CreateSandbox with a bundle that would be refused")
	if b.pod.sandbox.Hostname != "blue" {
		t.Errorf("config %+v", b.pod.sandbox)
	}
	st, err := ask[sandbox.SandboxStatusResponse](ctx, box, "SandboxStatus", &sandbox.SandboxStatusRequest{SandboxId: "box"})
	if err != nil || st.State != "SANDBOX_NOTREADY" {
		t.Errorf("status before the start: %v, %v", st, err)
	}
	started, err := ask[sandbox.StartSandboxResponse](ctx, box, "StartSandbox", &sandbox.StartSandboxRequest{SandboxId: "box"})
	if err != nil || started.Pid != 77 || started.CreatedAt.AsTime().IsZero() {
		t.Fatalf("started %v, %v", started, err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(started.Spec.GetValue(), &spec); err != nil || started.Spec.GetTypeUrl() != specURL || spec.Hostname != "blue" ||
		!slices.Contains(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: "/run/netns/x"}) ||
		!slices.Contains(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.IPCNamespace, Path: "/proc/77/ns/ipc"}) {
		t.Errorf("spec %+v, %v", started.Spec, err)
	}
	p, err := ask[sandbox.PlatformResponse](ctx, box, "Platform", &sandbox.PlatformRequest{SandboxId: "box"})
	if err != nil || p.Platform.OS != "linux" || p.Platform.Architecture == "" || b.pod.linked != 1 {
		t.Errorf("platform %v, %v; linked %d times", p, err, b.pod.linked)
	}
	st, err = ask[sandbox.SandboxStatusResponse](ctx, box, "SandboxStatus", &sandbox.SandboxStatusRequest{SandboxId: "box", Verbose: true})
	if err != nil || st.State != "SANDBOX_READY" || st.Pid != 77 || st.ExitedAt != nil || !strings.Contains(st.Info["info"], `"pid":77`) ||
		!strings.Contains(st.Info["info"], `"runtimeSpec":{"ociVersion"`) || st.Info["pid"] != "77" || st.Info["state"] != "SANDBOX_READY" {
		t.Errorf("status %v, %v", st, err)
	}
	if c := must[task.ConnectResponse](b, "Connect", &task.ConnectRequest{ID: "box"}); c.TaskPid != 77 {
		t.Errorf("Connect %v", c)
	}
	_, err = call[task.PidsResponse](b, "Pids", &task.PidsRequest{ID: "box"})
	wantCode(t, err, codes.NotFound, "Pids of a sandbox") // requirements.md#R4: its record tells containerd to keep it
	if _, err := ask[sandbox.PingResponse](ctx, box, "PingSandbox", &sandbox.PingRequest{SandboxId: "box"}); err != nil {
		t.Error(err)
	}
	if _, err := ask[sandbox.UpdateSandboxResponse](ctx, box, "UpdateSandbox", &sandbox.UpdateSandboxRequest{SandboxId: "box"}); err != nil {
		t.Error(err)
	}

	// A Shutdown that names the last app, which was deleted, does not end the service of a
	// sandbox. requirements.md#T16
	b.create("a")
	must[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: "a"})
	must[emptypb.Empty](b, "Shutdown", &task.ShutdownRequest{ID: "a"})
	select {
	case <-b.svc.Ending():
		t.Fatal("the service ends with its last app")
	default:
	}

	waited := make(chan *sandbox.WaitSandboxResponse, 1)
	go func() {
		r, err := ask[sandbox.WaitSandboxResponse](context.WithoutCancel(ctx), box, "WaitSandbox", &sandbox.WaitSandboxRequest{SandboxId: "box"})
		if err != nil {
			t.Error(err)
		}
		waited <- r
	}()
	if _, err := ask[sandbox.StopSandboxResponse](ctx, box, "StopSandbox", &sandbox.StopSandboxRequest{SandboxId: "box", TimeoutSecs: 2}); err != nil {
		t.Fatal(err)
	}
	if r := wait.For(t, "WaitSandbox", waited); r.ExitStatus != 3 || r.ExitedAt.AsTime().IsZero() || b.pod.grace.Seconds() != 2 {
		t.Errorf("exit %v, grace %s", r, b.pod.grace)
	}
	st, err = ask[sandbox.SandboxStatusResponse](ctx, box, "SandboxStatus", &sandbox.SandboxStatusRequest{SandboxId: "box"})
	if err != nil || st.State != "SANDBOX_NOTREADY" || st.ExitedAt.AsTime().IsZero() {
		t.Errorf("status after the stop: %v, %v", st, err)
	}
	if _, err := ask[sandbox.ShutdownSandboxResponse](ctx, box, "ShutdownSandbox", &sandbox.ShutdownSandboxRequest{SandboxId: "box"}); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "Done", b.svc.Done())
	if b.pod.sandbox != nil || !b.pod.closed {
		t.Error("the pod is not closed")
	}
}

func TestAnUnknownSandboxIsNotFound(t *testing.T) {
	b := newBench(t)
	ctx, box := t.Context(), b.sandboxes()
	bundle, _, _ := sandboxBundle(t)
	if _, err := ask[sandbox.CreateSandboxResponse](ctx, box, "CreateSandbox", &sandbox.CreateSandboxRequest{SandboxId: "box", BundlePath: bundle}); err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]func(id string) error{
		"Platform": func(id string) error {
			_, err := ask[sandbox.PlatformResponse](ctx, box, "Platform", &sandbox.PlatformRequest{SandboxId: id})
			return err
		},
		"Stop": func(id string) error {
			_, err := ask[sandbox.StopSandboxResponse](ctx, box, "StopSandbox", &sandbox.StopSandboxRequest{SandboxId: id})
			return err
		},
		"Wait": func(id string) error {
			_, err := ask[sandbox.WaitSandboxResponse](ctx, box, "WaitSandbox", &sandbox.WaitSandboxRequest{SandboxId: id})
			return err
		},
		"Status": func(id string) error {
			_, err := ask[sandbox.SandboxStatusResponse](ctx, box, "SandboxStatus", &sandbox.SandboxStatusRequest{SandboxId: id})
			return err
		},
		"Ping": func(id string) error {
			_, err := ask[sandbox.PingResponse](ctx, box, "PingSandbox", &sandbox.PingRequest{SandboxId: id})
			return err
		},
		"Shutdown": func(id string) error {
			_, err := ask[sandbox.ShutdownSandboxResponse](ctx, box, "ShutdownSandbox", &sandbox.ShutdownSandboxRequest{SandboxId: id})
			return err
		},
		"Metrics": func(id string) error {
			_, err := ask[sandbox.SandboxMetricsResponse](ctx, box, "SandboxMetrics", &sandbox.SandboxMetricsRequest{SandboxId: id})
			return err
		},
		"Update": func(id string) error {
			_, err := ask[sandbox.UpdateSandboxResponse](ctx, box, "UpdateSandbox", &sandbox.UpdateSandboxRequest{SandboxId: id})
			return err
		},
	} {
		wantCode(t, try("other"), codes.NotFound, name)
	}
}

func TestAServiceWhoseSandboxWasNotMadeEndsWithItsShutdown(t *testing.T) {
	b := newBench(t)
	b.pod.onCreateSandbox = func(pod.SandboxConfig) error { return errors.New("no room") }
	bundle, _, _ := sandboxBundle(t)
	_, err := ask[sandbox.CreateSandboxResponse](t.Context(), b.sandboxes(), "CreateSandbox", &sandbox.CreateSandboxRequest{SandboxId: "box", BundlePath: bundle})
	if err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("create: %v", err)
	}
	if _, err := ask[sandbox.ShutdownSandboxResponse](t.Context(), b.sandboxes(), "ShutdownSandbox", &sandbox.ShutdownSandboxRequest{SandboxId: "box"}); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "Done", b.svc.Done())
	_, err = ask[sandbox.CreateSandboxResponse](t.Context(), b.sandboxes(), "CreateSandbox", &sandbox.CreateSandboxRequest{SandboxId: "box", BundlePath: bundle})
	wantCode(t, err, codes.Unavailable, "create afterwards")
}

func TestAShutdownOfTheTaskServiceThatNamesTheSandboxEndsIt(t *testing.T) {
	// containerd has the sandbox's bundle and no record of the sandbox, or gives it up.
	b := newBench(t)
	bundle, _, _ := sandboxBundle(t)
	if _, err := ask[sandbox.CreateSandboxResponse](t.Context(), b.sandboxes(), "CreateSandbox", &sandbox.CreateSandboxRequest{SandboxId: "box", BundlePath: bundle}); err != nil {
		t.Fatal(err)
	}
	must[emptypb.Empty](b, "Shutdown", &task.ShutdownRequest{ID: "other"})
	must[emptypb.Empty](b, "Shutdown", &task.ShutdownRequest{ID: "box"})
	wait.For(t, "Done", b.svc.Done())
	if b.pod.sandbox != nil {
		t.Error("the sandbox is left")
	}
}

// requirements.md#G5
func TestASandboxThatTheStage1CannotHoldIsNoCauseToTryAnOlderAPI(t *testing.T) {
	b := newBench(t)
	b.pod.onCreateSandbox = func(pod.SandboxConfig) error {
		return fmt.Errorf("stage1 fly holds no namespaces: %w", errdefs.ErrNotImplemented)
	}
	bundle, _, _ := sandboxBundle(t)
	_, err := ask[sandbox.CreateSandboxResponse](t.Context(), b.sandboxes(), "CreateSandbox", &sandbox.CreateSandboxRequest{SandboxId: "box", BundlePath: bundle})
	wantCode(t, err, codes.FailedPrecondition, "create")
}

func TestMetricsOfASandbox(t *testing.T) {
	b := newBench(t)
	bundle, _, _ := sandboxBundle(t)
	if _, err := ask[sandbox.CreateSandboxResponse](t.Context(), b.sandboxes(), "CreateSandbox", &sandbox.CreateSandboxRequest{SandboxId: "box", BundlePath: bundle}); err != nil {
		t.Fatal(err)
	}
	b.pod.sandboxStats = pod.Stats{Stats: &cgroup.Stats{Version: 1, Pids: cgroup.Gauge{Current: 4}}}
	r, err := ask[sandbox.SandboxMetricsResponse](t.Context(), b.sandboxes(), "SandboxMetrics", &sandbox.SandboxMetricsRequest{SandboxId: "box"})
	if err != nil {
		t.Fatal(err)
	}
	var m v1.Metrics
	if err := proto.Unmarshal(r.Metrics.Data.Value, &m); err != nil || m.Pids.Current != 4 || r.Metrics.ID != "box" || r.Metrics.Timestamp == nil {
		t.Errorf("%v, %v", r.Metrics, err)
	}
}

func TestRefusedSandboxes(t *testing.T) {
	bundle, _, _ := sandboxBundle(t)
	userns := func(u *sandbox.UserNamespace) *anypb.Any {
		return podConfig(t, &sandbox.PodSandboxConfig{Linux: sandbox.LinuxPodSandboxConfig{SecurityContext: sandbox.LinuxSandboxSecurityContext{
			NamespaceOptions: sandbox.NamespaceOption{UsernsOptions: u}}}})
	}
	for name, r := range map[string]*sandbox.CreateSandboxRequest{
		"no id":              {BundlePath: bundle},
		"a relative bundle":  {SandboxId: "box", BundlePath: "bundle"},
		"an unknown message": {SandboxId: "box", BundlePath: bundle, Options: &anypb.Any{TypeUrl: "example.com/x", Value: []byte("x")}},
		"what is no message": {SandboxId: "box", BundlePath: bundle, Options: &anypb.Any{TypeUrl: sandbox.PodSandboxConfigName, Value: []byte("\xff")}},
		"a name of its own in the host's network": {SandboxId: "box", BundlePath: bundle, Options: podConfig(t, &sandbox.PodSandboxConfig{
			Hostname: "blue", Linux: sandbox.LinuxPodSandboxConfig{SecurityContext: sandbox.LinuxSandboxSecurityContext{
				NamespaceOptions: sandbox.NamespaceOption{Network: sandbox.ModeNode}}}})},
		"no mappings":        {SandboxId: "box", BundlePath: bundle, Options: userns(&sandbox.UserNamespace{})},
		"another mode":       {SandboxId: "box", BundlePath: bundle, Options: userns(&sandbox.UserNamespace{Mode: sandbox.ModeContainer})},
		"an annotation":      {SandboxId: "box", BundlePath: bundle, Annotations: map[string]string{"io.containerd.rkt.v1/stage2": "x"}},
		"an annotation, CRI": {SandboxId: "box", BundlePath: bundle, Options: podConfig(t, &sandbox.PodSandboxConfig{Annotations: map[string]string{"io.containerd.rkt.v1/stage2": "x"}})},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			_, err := ask[sandbox.CreateSandboxResponse](t.Context(), b.sandboxes(), "CreateSandbox", r)
			wantCode(t, err, codes.InvalidArgument, name)
		})
	}
}

func TestANetworkThatIsUnmountedIsClosed(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "netns")
	if err := os.WriteFile(gone, nil, 0o644); err != nil { // an unmounted namespace leaves a file
		t.Fatal(err)
	}
	for path, closed := range map[string]bool{"": false, "/proc/self/ns/net": false, gone: true, gone + "-removed": true} {
		c := pod.SandboxConfig{Namespaces: []abi.Namespace{{Type: "ipc"}, {Type: "network", Path: path}}}
		if networkClosed(c) != closed {
			t.Errorf("%q: closed is %t", path, !closed)
		}
	}
}

// namespacesOf lists namespaces as "type" or "type=path".
func namespacesOf(c pod.SandboxConfig) []string {
	var all []string
	for _, ns := range c.Namespaces {
		s := ns.Type
		if ns.Path != "" {
			s += "=" + ns.Path
		}
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}

func TestNamespacesOfAPod(t *testing.T) {
	const node, private, shared = sandbox.ModeNode, sandbox.ModeContainer, sandbox.ModePod
	mapped := &sandbox.UserNamespace{
		Uids: []*sandbox.IDMapping{{HostId: 100000, Length: 65536}}, Gids: []*sandbox.IDMapping{{HostId: 200000, Length: 65536}},
	}
	for name, c := range map[string]struct {
		options sandbox.NamespaceOption
		netns   string
		want    []string
		userOf  string
		maps    bool
	}{
		"of its own":          {sandbox.NamespaceOption{Pid: private}, "/n", []string{"ipc", "network=/n", "pid", "uts"}, "", false},
		"shared PIDs":         {sandbox.NamespaceOption{Pid: shared}, "/n", []string{"ipc", "network=/n", "pid", "uts"}, "", false},
		"the host's PIDs":     {sandbox.NamespaceOption{Pid: node}, "/n", []string{"ipc", "network=/n", "uts"}, "", false},
		"the host's network":  {sandbox.NamespaceOption{Network: node}, "", []string{"ipc", "pid"}, "", false},
		"the host's IPC":      {sandbox.NamespaceOption{Ipc: node}, "/n", []string{"network=/n", "pid", "uts"}, "", false},
		"all the host's":      {sandbox.NamespaceOption{Network: node, Ipc: node, Pid: node}, "", nil, "", false},
		"users":               {sandbox.NamespaceOption{UsernsOptions: mapped}, "/n", []string{"ipc", "network=/n", "pid", "uts"}, "/n", true},
		"users, host network": {sandbox.NamespaceOption{Network: node, UsernsOptions: mapped}, "", []string{"ipc", "pid", "user"}, "", true},
		"the host's users":    {sandbox.NamespaceOption{UsernsOptions: &sandbox.UserNamespace{Mode: node}}, "/n", []string{"ipc", "network=/n", "pid", "uts"}, "", false},
		"nothing said at all": {sandbox.NamespaceOption{}, "/n", []string{"ipc", "network=/n", "pid", "uts"}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			bundle, _, _ := sandboxBundle(t)
			config := &sandbox.PodSandboxConfig{Hostname: "blue", Linux: sandbox.LinuxPodSandboxConfig{
				SecurityContext: sandbox.LinuxSandboxSecurityContext{NamespaceOptions: c.options}}}
			if c.options.Network == node {
				config.Hostname = ""
			}
			got, _, err := sandboxConfig(&sandbox.CreateSandboxRequest{SandboxId: "box", BundlePath: bundle, NetnsPath: c.netns, Options: podConfig(t, config)}, false)
			if err != nil {
				t.Fatal(err)
			}
			if n := namespacesOf(got); !slices.Equal(n, c.want) || got.UserOf != c.userOf {
				t.Errorf("namespaces %v and that of %q, want %v and %q", n, got.UserOf, c.want, c.userOf)
			}
			if (len(got.UIDMappings) > 0) != c.maps || c.maps && got.GIDMappings[0].HostID != 200000 {
				t.Errorf("mappings %v, %v", got.UIDMappings, got.GIDMappings)
			}
			host := c.options.Network == node
			if (got.Hostname == "") != host {
				t.Errorf("hostname %q", got.Hostname)
			}
			if _, ok := got.Sysctl["net.ipv4.ip_unprivileged_port_start"]; ok == host {
				t.Errorf("sysctls %v", got.Sysctl)
			}
			if (got.Shm.Size == 0) != (c.options.Ipc == node) {
				t.Errorf("shm %+v", got.Shm)
			}
		})
	}
}

func TestFilesCgroupsAndSysctlsOfAPod(t *testing.T) {
	bundle, root, state := sandboxBundle(t)
	config := &sandbox.PodSandboxConfig{
		Hostname:  "blue",
		DnsConfig: &sandbox.DNSConfig{Servers: []string{"192.0.2.1", "192.0.2.2"}, Searches: []string{"a.example", "example"}, Options: []string{"ndots:5", "rotate"}},
		Linux: sandbox.LinuxPodSandboxConfig{
			CgroupParent: "/kubepods/pod1",
			Sysctls:      map[string]string{"net.ipv4.ping_group_range": "1 1", "kernel.shm_rmid_forced": "1"},
		},
	}
	r := &sandbox.CreateSandboxRequest{SandboxId: "box", BundlePath: bundle, NetnsPath: "/n", Options: podConfig(t, config)}
	c, _, err := sandboxConfig(r, true)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range c.Files {
		files[f.Name] = string(f.Content)
		if filepath.Clean(f.Link) != filepath.Join(root, f.Name) {
			t.Errorf("%s is linked from %s, want below %s", f.Name, f.Link, root)
		}
	}
	hosts, _ := os.ReadFile("/etc/hosts")
	want := map[string]string{
		"hostname":    "blue\n",
		"hosts":       string(hosts),
		"resolv.conf": "search a.example example\nnameserver 192.0.2.1\nnameserver 192.0.2.2\noptions ndots:5 rotate\n",
	}
	if !maps.Equal(files, want) {
		t.Errorf("files %q, want %q", files, want)
	}
	if c.Shm.Size != 64<<20 || filepath.Clean(c.Shm.Link) != filepath.Join(state, "shm") {
		t.Errorf("shm %+v", c.Shm)
	}
	if want := map[string]string{"net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": "1 1", "kernel.shm_rmid_forced": "1"}; !maps.Equal(c.Sysctl, want) {
		t.Errorf("sysctls %v, want %v", c.Sysctl, want)
	}
	if c.CgroupsPath != "/kubepods/pod1/box" || c.CgroupParent != "/kubepods/pod1" || !c.Debug {
		t.Errorf("cgroups %q and %q", c.CgroupsPath, c.CgroupParent)
	}
	if err := os.Remove(filepath.Join(bundle, "work")); err != nil {
		t.Fatal(err)
	}
	if c, _, err := sandboxConfig(r, true); err != nil || c.Shm.Link != "" || c.Files[0].Link != "" || len(c.Files) != 3 {
		t.Errorf("in a bundle that is not containerd's: %+v, %v", c, err)
	}
	if got := criCgroupsPath("/kubepods.slice/kubepods-pod1.slice", "box"); got != "kubepods-pod1.slice:cri-containerd:box" {
		t.Errorf("with systemd's driver: %q", got)
	}
	resolv, err := resolvConf(nil)
	if host, _ := os.ReadFile("/etc/resolv.conf"); err != nil || string(resolv) != string(host) {
		t.Errorf("without a DNS configuration: %q, %v", resolv, err)
	}
}

func TestASandboxWithASpecOfItsOwn(t *testing.T) {
	bundle, _, _ := sandboxBundle(t)
	plain, _, err := sandboxConfig(&sandbox.CreateSandboxRequest{SandboxId: "box", BundlePath: bundle}, false)
	if err != nil || !slices.Equal(namespacesOf(plain), []string{"ipc", "network", "pid", "uts"}) || len(plain.Files) > 0 {
		t.Errorf("without a spec: %+v, %v", plain, err)
	}
	text := `{"hostname":"blue","annotations":{"a":"b"},"process":{"args":["/pause"]},"linux":{"cgroupsPath":"/x/box","sysctl":{"kernel.msgmax":"1"},
		"uidMappings":[{"containerID":0,"hostID":5,"size":1}],"gidMappings":[{"containerID":0,"hostID":6,"size":1}],
		"namespaces":[{"type":"mount"},{"type":"network"},{"type":"uts"},{"type":"user"}]}}`
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, annotations, err := sandboxConfig(&sandbox.CreateSandboxRequest{
		SandboxId: "box", BundlePath: bundle, NetnsPath: "/n", Annotations: map[string]string{"c": "d"}, Options: &anypb.Any{TypeUrl: "google.protobuf.Empty"},
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(namespacesOf(c), []string{"network=/n", "user", "uts"}) || c.Hostname != "blue" || c.CgroupsPath != "/x/box" || c.Sysctl["kernel.msgmax"] != "1" {
		t.Errorf("%+v", c)
	}
	if want := []abi.IDMapping{{HostID: 5, Size: 1}}; !slices.Equal(c.UIDMappings, want) {
		t.Errorf("mappings %v", c.UIDMappings)
	}
	if !maps.Equal(annotations, map[string]string{"a": "b", "c": "d"}) {
		t.Errorf("annotations %v", annotations)
	}
}

func TestLabelsOfSELinux(t *testing.T) {
	for want, o := range map[string]*sandbox.SELinuxOption{
		"":                                       nil,
		"system_u:system_r:container_t:s0:c1,c2": {Level: "s0:c1,c2"},
		"u:r:t:l":                                {User: "u", Role: "r", Type: "t", Level: "l"},
	} {
		if got := labelOf(o); got != want {
			t.Errorf("%v is %q, want %q", o, got, want)
		}
	}
}

func TestEventsOfMembersAreOnlyTheirs(t *testing.T) {
	b := newBench(t)
	bundle, _, _ := sandboxBundle(t)
	if _, err := ask[sandbox.CreateSandboxResponse](t.Context(), b.sandboxes(), "CreateSandbox", &sandbox.CreateSandboxRequest{SandboxId: "box", BundlePath: bundle}); err != nil {
		t.Fatal(err)
	}
	if _, err := ask[sandbox.StartSandboxResponse](t.Context(), b.sandboxes(), "StartSandbox", &sandbox.StartSandboxRequest{SandboxId: "box"}); err != nil {
		t.Fatal(err)
	}
	b.create("a")
	must[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: "a"})
	if _, err := ask[sandbox.ShutdownSandboxResponse](t.Context(), b.sandboxes(), "ShutdownSandbox", &sandbox.ShutdownSandboxRequest{SandboxId: "box"}); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "Done", b.svc.Done())
	if got := b.sink.topics(); !slices.Equal(got, []string{"/tasks/create", "/tasks/delete"}) {
		t.Errorf("events: %v", got)
	}
}

// A sandbox without containerd ends with its last app if it asks for that. A client of containerd's
// cannot ask for it, by whatever annotation: containerd would not know that the sandbox has ended.
func TestOnlyASandboxWithoutContainerdEndsWithItsApps(t *testing.T) {
	for _, address := range []string{"", "containerd's"} {
		b := newBench(t)
		if address == "" {
			b.svc.cfg.EventsAddress = ""
		}
		bundle, _, _ := sandboxBundle(t)
		create := &sandbox.CreateSandboxRequest{SandboxId: "box", BundlePath: bundle, Annotations: map[string]string{sandbox.EndsWithApps: "true"}}
		if _, err := ask[sandbox.CreateSandboxResponse](t.Context(), b.sandboxes(), "CreateSandbox", create); err != nil {
			t.Fatal(err)
		}
		if b.pod.sandbox.KeepExits != (address == "") {
			t.Errorf("%q: %+v", address, b.pod.sandbox)
		}
		for _, id := range []string{"a", "b"} {
			b.create(id)
			must[task.StartResponse](b, "Start", &task.StartRequest{ID: id})
		}
		b.pod.exit("a", "", 0)
		b.svc.work.Wait()
		select {
		case <-b.svc.Ending():
			t.Errorf("%q: the sandbox ends although an app runs", address)
		default:
		}
		b.pod.exit("b", "", 0)
		if address == "" {
			wait.For(t, "the end of the sandbox", b.svc.Ending())
			continue
		}
		b.svc.work.Wait()
		select {
		case <-b.svc.Ending():
			t.Error("containerd's sandbox has ended with its apps")
		default:
		}
	}
}

// endingBench has a sandbox that ends with its apps.
func endingBench(t *testing.T, apps ...string) *bench {
	t.Helper()
	b := newBench(t)
	b.svc.cfg.EventsAddress = ""
	bundle, _, _ := sandboxBundle(t)
	create := &sandbox.CreateSandboxRequest{SandboxId: "box", BundlePath: bundle, Annotations: map[string]string{sandbox.EndsWithApps: "true"}}
	if _, err := ask[sandbox.CreateSandboxResponse](t.Context(), b.sandboxes(), "CreateSandbox", create); err != nil {
		t.Fatal(err)
	}
	for _, id := range apps {
		b.create(id)
	}
	return b
}

// expectRunning fails the test if the service ends.
func (b *bench) expectRunning(when string) {
	b.t.Helper()
	b.svc.work.Wait()
	select {
	case <-b.svc.Ending():
		b.t.Errorf("the sandbox ends %s", when)
	default:
	}
}

func TestASandboxEndsAlthoughItsLastAppIsDeletedAtOnce(t *testing.T) {
	b := endingBench(t, "a", "b")
	must[task.StartResponse](b, "Start", &task.StartRequest{ID: "a"})
	b.pod.exit("a", "", 0)
	must[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: "a"})
	b.expectRunning("although an app is to be started")
	must[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: "b"})
	wait.For(t, "the end of the sandbox", b.svc.Ending())
}

func TestASandboxDoesNotEndBeforeItsFirstAppHasEnded(t *testing.T) {
	b := endingBench(t, "a")
	must[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: "a"})
	b.expectRunning("although no app has run")
}

func TestASandboxDoesNotEndIfAnAppIsAddedMeanwhile(t *testing.T) {
	b := endingBench(t, "a")
	var once sync.Once
	b.pod.onEnded = func() { once.Do(func() { b.create("b") }) }
	must[task.StartResponse](b, "Start", &task.StartRequest{ID: "a"})
	b.pod.exit("a", "", 0)
	b.expectRunning("although an app was added")
	must[task.StartResponse](b, "Start", &task.StartRequest{ID: "b"})
	b.pod.exit("b", "", 0)
	wait.For(t, "the end of the sandbox", b.svc.Ending())
}

func TestASandboxEndsIfItsAppsCannotBeStartedOrMade(t *testing.T) {
	b := endingBench(t, "a")
	b.pod.onStart = func(pod.AppID) error { return errors.New("no such program") }
	if _, err := call[task.StartResponse](b, "Start", &task.StartRequest{ID: "a"}); err == nil {
		t.Error("started")
	}
	wait.For(t, "the end of the sandbox", b.svc.Ending())

	b = endingBench(t, "a")
	must[task.StartResponse](b, "Start", &task.StartRequest{ID: "a"})
	b.pod.onCreate = func(pod.AppConfig) error {
		b.pod.exit("a", "", 0)
		b.expectRunning("although an app is being made")
		return errors.New("no space left")
	}
	if _, err := call[task.CreateTaskResponse](b, "Create", &task.CreateTaskRequest{ID: "b", Bundle: bundle(t)}); err == nil {
		t.Error("created")
	}
	wait.For(t, "the end of the sandbox", b.svc.Ending())
}

func TestAServiceThatIsClosedBeginsNothing(t *testing.T) {
	b := endingBench(t)
	if err := b.svc.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.svc.background(func() { t.Error("it runs after Close") })
	b.svc.work.Wait()
}
