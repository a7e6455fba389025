package hostile

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/rkt/containerd-shim-rkt-v1/integration/daemon"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/machines"
)

// node is a containerd with the runtime of one column, and the files of the host that its
// attackers try to reach. Only one mode at a time uses it, so all loot there is that mode's.
type node struct {
	*column
	short  string // a name for paths
	daemon *daemon.Daemon
	client *containerd.Client
	canary *canary

	mu     sync.Mutex
	serial int
}

// nodes are all nodes that were started.
var nodes struct {
	mu      sync.Mutex
	started int
	idle    []*node
}

// take returns an unused node of the column, and starts one if there is none.
func (c *column) take() (*node, error) {
	nodes.mu.Lock()
	for i, n := range nodes.idle {
		if n.column == c {
			nodes.idle = append(nodes.idle[:i], nodes.idle[i+1:]...)
			nodes.mu.Unlock()
			return n, nil
		}
	}
	nodes.started++
	n := &node{column: c, short: fmt.Sprint("n", nodes.started)}
	nodes.mu.Unlock()
	if err := n.start(context.Background()); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// release lets other modes use the node.
func (n *node) release() {
	nodes.mu.Lock()
	defer nodes.mu.Unlock()
	nodes.idle = append(nodes.idle, n)
}

func closeNodes() (err error) {
	nodes.mu.Lock()
	defer nodes.mu.Unlock()
	for _, n := range nodes.idle {
		err = errors.Join(err, n.close())
	}
	return err
}

func (n *node) start(ctx context.Context) (err error) {
	dir := filepath.Join(nodesDir, n.short)
	if n.canary, err = newCanary(filepath.Join("/opt/canary", n.short)); err != nil {
		return err
	}
	n.daemon, err = daemon.Start(ctx, daemon.Options{
		Dir: dir, Programs: programsDir, Shims: []string{cmp.Or(n.shims, programsDir), n.runc},
		Env: n.environment(), Namespace: "hostile-" + n.short, LogLevel: "info",
	})
	if err != nil {
		return err
	}
	images, err := n.images()
	if err != nil {
		return err
	}
	archive := filepath.Join(dir, "images.tar")
	if err := image.WriteFile(archive, images...); err != nil {
		return err
	}
	defer os.Remove(archive)
	if out, err := n.daemon.Ctr(ctx, "image", "import", archive).CombinedOutput(); err != nil {
		return fmt.Errorf("import images: %w: %s", err, out)
	}
	n.client, err = n.daemon.Client()
	return err
}

func (n *node) environment() []string {
	env := []string{"RKT_DATA_DIR=" + n.dataDir()}
	if n.ofMachines() {
		env = append(env, "RKT_CONFIG="+filepath.Join(machinesDir, machines.File))
	}
	return env
}

func (n *node) dataDir() string { return filepath.Join(nodesDir, n.short, "rkt") }

func (n *node) close() error {
	if n.daemon == nil {
		return nil
	}
	if n.client != nil {
		n.client.Close()
	}
	return n.daemon.Stop()
}

// id returns an id that no other container of the node has.
func (n *node) id() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.serial++
	return fmt.Sprint("c", n.serial)
}

func token() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}
