package node

import (
	"cmp"
	"fmt"
	"strings"
)

// config returns the configuration of the daemon. Plugins that CRI does not need are disabled.
// A pod's OOM score is at least that of containerd: a lower one needs CAP_SYS_RESOURCE, which a
// machine that runs tests may lack.
func config(opts Options) string {
	var b strings.Builder
	if opts.DropIns != "" {
		fmt.Fprintf(&b, "imports = [%q]\n", opts.DropIns+"/*.toml")
	}
	b.WriteString(base)
	fmt.Fprintf(&b, "\n[plugins.\"io.containerd.shim.v1.manager\"]\n  socket_dir = %q\n", socketDir(opts))
	fmt.Fprintf(&b, "\n[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = %t\n  socket_path = %q\n", opts.NRI == "", opts.NRI)
	fmt.Fprintf(&b, "\n[plugins.\"io.containerd.cri.v1.runtime\"]\n%s  drain_exec_sync_io_timeout = %q\n", runtimeSettings, cmp.Or(opts.DrainExecs, "0s"))
	if opts.Default != "" {
		fmt.Fprintf(&b, "\n[plugins.\"io.containerd.cri.v1.runtime\".containerd]\n  default_runtime_name = %q\n", opts.Default)
	}
	for _, h := range opts.Handlers {
		fmt.Fprintf(&b, `
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.%s]
  runtime_type = %q
  sandboxer = %q
  pod_annotations = ["io.containerd.rkt.v1/*"]
  container_annotations = ["io.containerd.rkt.v1/*"]
`, h.Name, h.Runtime, h.Sandboxer)
		if h.CgroupWritable {
			b.WriteString("  cgroup_writable = true\n")
		}
		if h.NoHostDevices {
			b.WriteString("  privileged_without_host_devices = true\n")
		}
		if h.Options != "" {
			fmt.Fprintf(&b, "  [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.%s.options]\n%s\n", h.Name, h.Options)
		}
	}
	return b.String()
}

// WithDropIns returns the configuration of a daemon with CRI to which an operator adds files in
// a directory. It is for daemon.Start, and concerns only the daemon's private directory. It has
// a setting of the CRI plugin, which must be kept when a file is added.
func WithDropIns(dir string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "imports = [%q]\n%s", dir+"/*.toml", base)
	b.WriteString("\n[plugins.\"io.containerd.shim.v1.manager\"]\n  socket_dir = \"SOCKETS\"\n")
	b.WriteString("\n[plugins.\"io.containerd.nri.v1.nri\"]\n  socket_path = \"DIR/nri.sock\"\n  plugin_path = \"DIR/nri\"\n  plugin_config_path = \"DIR/nri\"\n")
	fmt.Fprintf(&b, "\n[plugins.\"io.containerd.cri.v1.runtime\"]\n%s  max_container_log_line_size = 4242\n", runtimeSettings)
	fmt.Fprintf(&b, "\n[plugins.\"io.containerd.cri.v1.images\".pinned_images]\n  sandbox = %q\n", PauseImage)
	return b.String()
}

const base = `version = 3
root = "DIR/root"
state = "DIR/state"
oom_score = 0
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.erofs",
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

[plugins."io.containerd.cri.v1.images"]
  stats_collect_period = 1

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "DIR/cni"
`

// runtimeSettings are settings of CRI's runtime plugin.
const runtimeSettings = `  restrict_oom_score_adj = true
  disable_hugetlb_controller = false
  tolerate_missing_hugetlb_controller = true
  cdi_spec_dirs = ["DIR/cdi"]
  netns_mounts_under_state_dir = true
`
