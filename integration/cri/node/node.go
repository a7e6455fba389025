// Package node runs a Kubernetes node without a kubelet: a private containerd with
// its CRI plugin, handlers for the runtimes under test, and Debian's CNI plugins on
// a bridge. It is for processes in an enclosure: the bridge, its addresses and its
// packet filters belong to the network namespace of whoever starts the node.
package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rkt/containerd-shim-rkt-v1/integration/daemon"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// Namespace is the one of containerd's that CRI uses.
const Namespace = "k8s.io"

// PauseImage is the one that containerd 2.4 uses unless it is told another. With
// it among the images of a node, none is pulled.
const PauseImage = "registry.k8s.io/pause:3.10.2"

// Handler is what a pod's runtimeClass names.
type Handler struct {
	Name    string
	Runtime string // io.containerd.rkt.v1
	// Sandboxer is podsandbox, where a pause container is the pod's first, or shim,
	// where the shim makes the pod by itself.
	Sandboxer string
	// Options is a table of options in TOML, or nothing, as it should be: CRI could
	// not give a pod with a user namespace its identity beside one, unless the
	// runtime is runc's.
	Options string
	// CgroupWritable lets containers write to their cgroups, which version 1 does not
	// have.
	CgroupWritable bool
}

// Options say how a node is to run.
type Options struct {
	Dir      string   // private directory, kept short: sockets are in it
	Programs string   // directory of containerd and ctr
	Shims    []string // directories of shims
	Env      []string // further environment of containerd and its shims
	Handlers []Handler
	Default  string // the handler of pods that name none
	// Network tells the pods' networks of nodes apart that run side by side.
	Network int
	// NRI is the socket of plugins of that interface, which is off without.
	NRI string
	// CommonSockets has shims listen where they do by default, in /run/containerd/s.
	CommonSockets bool
	// DrainExecs bounds how long ExecSync waits for the output of what an exec leaves
	// behind: a duration, or nothing for no bound.
	DrainExecs string
	// Images are there from the beginning. PauseImage must be among them, unless
	// it can be pulled.
	Images []image.Image
}

// Node is a running one.
type Node struct {
	*daemon.Daemon
	opts Options
}

// Start starts a node and returns once it serves. Stop must be called.
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

// Pods is the directory of our pods, with one below for each state.
func (n *Node) Pods() string { return filepath.Join(dataDir(n.opts.Dir), "pods") }

// Bridge is the pods' network interface on the node.
func (n *Node) Bridge() string { return bridge(n.opts.Network) }

// Shims is the directory of the shims' sockets.
func (n *Node) Shims() string { return socketDir(n.opts) }

func socketDir(o Options) string {
	if o.CommonSockets {
		return "/run/containerd/s"
	}
	return daemon.SocketDir(o.Dir)
}

func dataDir(dir string) string { return filepath.Join(dir, "rkt") }
