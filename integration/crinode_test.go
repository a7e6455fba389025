package integration

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/daemon"
)

// oldCRINode is like the configuration of crinode.WithDropIns, for containerd 1.6 and 1.7.
const oldCRINode = `version = 2
root = "DIR/root"
state = "DIR/state"
oom_score = 0
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.nri.v1.nri",
]

[grpc]
  address = "DIR/grpc.sock"

[ttrpc]
  address = "DIR/ttrpc.sock"

[debug]
  level = "LEVEL"

[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  restrict_oom_score_adj = true
  max_container_log_line_size = 4242
  netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "DIR/cni"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

`

// criDaemon is a containerd with CRI.
type criDaemon struct {
	*daemon.Daemon
	runtime runtimeapi.RuntimeServiceClient
}

// criOf starts a containerd with CRI, which ends with the test.
func criOf(t *testing.T, r release, name, config string, env ...string) criDaemon {
	t.Helper()
	programs, err := r.find(t.Context())
	if err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(suite.dir, name)
	if err := suite.pods.Watch(dataDir(dir)); err != nil {
		t.Fatal(err)
	}
	d, err := daemon.Start(t.Context(), daemon.Options{
		Dir: dir, Programs: programs, Shims: []string{suite.shims}, Env: append(env, "RKT_DATA_DIR="+dataDir(dir)),
		Namespace: "k8s.io", Old: r.old, Config: config,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon's log ends with:\n%s", d.LogTail(20))
		}
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	client, err := d.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	conn, ok := client.Conn().(grpc.ClientConnInterface)
	if !ok {
		t.Fatalf("the client's connection is a %T", client.Conn())
	}
	return criDaemon{d, runtimeapi.NewRuntimeServiceClient(conn)}
}
