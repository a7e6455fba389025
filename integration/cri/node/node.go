// Package node runs a Kubernetes node without a kubelet: a private containerd with its CRI
// plugin, handlers for the runtimes under test, and Debian's CNI plugins on a bridge. Its
// callers run in an enclosure: the bridge, its addresses and its packet filters are made in the
// network namespace of the process that starts the node.
package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rkt/containerd-shim-rkt-v1/integration/daemon"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// Namespace is the containerd namespace that CRI uses.
const Namespace = "k8s.io"

// PauseImage is the pause image that containerd 2.4 uses by default. If a node has it, the node
// pulls no image.
const PauseImage = "registry.k8s.io/pause:3.10.2"

// Handler is a handler that a pod's runtimeClass names.
type Handler struct {
	Name    string
	Runtime string // io.containerd.rkt.v1
	// Sandboxer is podsandbox, where a pause container is the pod's first container, or shim,
	// where the shim makes the pod itself.
	Sandboxer string
	// Options is a table of options in TOML, and usually empty: with options, CRI cannot run
	// pods with user namespaces, unless the runtime is runc.
	Options string
	// CgroupWritable lets containers write to their cgroups. Version 1 does not support that.
	CgroupWritable bool
	// NoHostDevices gives privileged containers no devices of the node.
	NoHostDevices bool
}

// Options describe how a node runs.
type Options struct {
	Dir      string   // private directory; short, because sockets are in it
	Programs string   // directory of containerd and ctr
	Shims    []string // directories of shims
	Env      []string // further environment of containerd and its shims
	Handlers []Handler
	Default  string // the handler of pods that name no handler; "": runc, which needs no Handler
	DropIns  string // directory of further files of containerd's configuration
	// Network is the number of the pods' network. Nodes that run in parallel need different
	// ones.
	Network int
	// NRI is the socket of NRI plugins. Without it NRI is disabled.
	NRI string
	// CommonSockets makes shims listen in their default directory, /run/containerd/s.
	CommonSockets bool
	// DrainExecs bounds the time for which ExecSync waits for the output of processes that an
	// exec leaves. It is a duration; empty means no bound.
	DrainExecs string
	// Images are imported at the start. PauseImage must be among them, unless it can be pulled.
	Images []image.Image
}

// Node is a running node.
type Node struct {
	*daemon.Daemon
	opts Options
}

// Start starts a node and returns when it serves. The caller must call Stop.
func Start(ctx context.Context, opts Options) (*Node, error) {
	if err := WriteNetwork(filepath.Join(opts.Dir, "cni"), opts.Network); err != nil {
		return nil, err
	}
	d, err := daemon.Start(ctx, daemon.Options{
		Dir:       opts.Dir,
		Programs:  opts.Programs,
		Shims:     opts.Shims,
		Env:       append([]string{"RKT_DATA_DIR=" + dataDir(opts.Dir)}, opts.Env...),
		Namespace: Namespace,
		Config:    config(opts),
	})
	if err != nil {
		return nil, err
	}
	n := &Node{d, opts}
	if err := n.load(ctx); err != nil {
		d.Kill()
		return nil, err
	}
	return n, nil
}

// load imports the images.
func (n *Node) load(ctx context.Context) error {
	if len(n.opts.Images) == 0 {
		return nil
	}
	archive := filepath.Join(n.opts.Dir, "images.tar")
	if err := image.WriteFile(archive, n.opts.Images...); err != nil {
		return err
	}
	defer os.Remove(archive)
	if out, err := n.Ctr(ctx, "image", "import", archive).CombinedOutput(); err != nil {
		return fmt.Errorf("import images: %w: %s", err, out)
	}
	var names []string
	for _, i := range n.opts.Images {
		names = append(names, i.Name)
	}
	return AwaitImages(ctx, n.Address(), names...)
}

// Endpoint is where CRI is served.
func (n *Node) Endpoint() string { return "unix://" + n.Address() }

// Pods is the directory of our pods, with a directory for each state.
func (n *Node) Pods() string { return filepath.Join(dataDir(n.opts.Dir), "pods") }

// Bridge is the pods' network interface on the node.
func (n *Node) Bridge() string { return bridge(n.opts.Network) }

// NRI is the socket of NRI plugins.
func (n *Node) NRI() string { return n.opts.NRI }

// Shims is the directory of the shims' sockets.
func (n *Node) Shims() string { return socketDir(n.opts) }

func socketDir(o Options) string {
	if o.CommonSockets {
		return "/run/containerd/s"
	}
	return daemon.SocketDir(o.Dir)
}

func dataDir(dir string) string { return filepath.Join(dir, "rkt") }
