package daemon

import "strings"

// SocketDir is the directory in which the shims of a daemon in dir listen, unless the daemon is
// an old one.
func SocketDir(dir string) string { return dir + "/s" }

// config is the daemon's configuration. Plugins that reach beyond the private directory, or
// that the suite does not need, are disabled: CRI, NRI (a socket in /run), opt
// (/opt/containerd). oom_score stays 0, because lowering it needs CAP_SYS_RESOURCE, which a
// container that runs this suite may lack.
func config(opts Options, logLevel string) string {
	text := current
	switch {
	case opts.Config != "":
		text = opts.Config
	case opts.Old:
		text = old
	}
	if opts.Tracing != "" {
		for _, plugin := range []string{"io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"} {
			text = strings.Replace(text, "  \""+plugin+"\",\n", "", 1)
		}
	}
	return strings.NewReplacer("DIR", opts.Dir, "SOCKETS", SocketDir(opts.Dir), "LEVEL", logLevel).Replace(text)
}

const current = `version = 3
root = "DIR/root"
state = "DIR/state"
oom_score = 0
disabled_plugins = [
  "io.containerd.grpc.v1.cri",
  "io.containerd.cri.v1.images",
  "io.containerd.cri.v1.runtime",
  "io.containerd.nri.v1.nri",
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.podsandbox.controller.v1.podsandbox",
]

[grpc]
  address = "DIR/grpc.sock"

[ttrpc]
  address = "DIR/ttrpc.sock"

[debug]
  level = "LEVEL"

[plugins."io.containerd.internal.v1.restart"]
  interval = "2s"

[plugins."io.containerd.shim.v1.manager"]
  socket_dir = "SOCKETS"
`

// old is for 1.6 and 1.7, and for the releases to which they are upgraded. Each ignores keys
// that it does not know.
const old = `version = 2
root = "DIR/root"
state = "DIR/state"
oom_score = 0
disabled_plugins = [
  "io.containerd.grpc.v1.cri",
  "io.containerd.cri.v1.images",
  "io.containerd.cri.v1.runtime",
  "io.containerd.nri.v1.nri",
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.podsandbox.controller.v1.podsandbox",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "DIR/grpc.sock"

[ttrpc]
  address = "DIR/ttrpc.sock"

[debug]
  level = "LEVEL"

[plugins."io.containerd.internal.v1.restart"]
  interval = "2s"
`
