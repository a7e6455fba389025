package hostile

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/rkt/containerd-shim-rkt-v1/integration/daemon"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// column is a runtime with a containerd of its own.
type column struct {
	name    string
	runtime string
	shims   string // directory of its shim, if that is not containerd's
	runc    string // directory of its runc
	// role is what the column is for.
	role role

	once   sync.Once
	err    error // of starting it
	daemon *daemon.Daemon
	client *containerd.Client
	canary *canary
	mu     sync.Mutex
	serial int
}

// role is what a column is for.
type role int

const (
	ours   role = iota // nothing may win
	oracle             // what wins is said
	proof              // an older release: the attacks on it have to win
)

// Names of columns that attacks are proved with.
const (
	runcRC6     = "runc 1.0.0-rc6"
	runcRC94    = "runc 1.0.0-rc94"
	runc111     = "runc 1.1.1"
	nativeOld   = "native " + earlier
	nspawnOld   = "nspawn " + earlier
	ociOld      = "oci " + earlier
	currentRunc = "runc"
)

var columns = []*column{
	{name: "native", runtime: "io.containerd.rkt.v1", shims: shimsDir, runc: runcDir},
	{name: "oci", runtime: "io.containerd.rkt-oci.v1", shims: shimsDir, runc: runcDir},
	{name: "nspawn", runtime: "io.containerd.rkt-nspawn.v1", shims: shimsDir, runc: runcDir},
	{name: currentRunc, runtime: "io.containerd.runc.v2", runc: runcDir, role: oracle},
	{name: runcRC6, runtime: "io.containerd.runc.v2", runc: oldRuncsDir + "/v1.0.0-rc6", role: proof},
	{name: runcRC94, runtime: "io.containerd.runc.v2", runc: oldRuncsDir + "/v1.0.0-rc94", role: proof},
	{name: runc111, runtime: "io.containerd.runc.v2", runc: oldRuncsDir + "/v1.1.1", role: proof},
	{name: nativeOld, runtime: "io.containerd.rkt.v1", shims: earlierDir, runc: runcDir, role: proof},
	{name: nspawnOld, runtime: "io.containerd.rkt-nspawn.v1", shims: earlierDir, runc: runcDir, role: proof},
	{name: ociOld, runtime: "io.containerd.rkt-oci.v1", shims: earlierDir, runc: oldRuncsDir + "/v1.1.1", role: proof},
}

func (c *column) isRunc() bool { return c.runtime == "io.containerd.runc.v2" }

// usesRunc reports whether it is runc that isolates, by its own shim or not.
func (c *column) usesRunc() bool { return c.isRunc() || c.runtime == "io.containerd.rkt-oci.v1" }

// unavailable is why a column cannot be tried here.
func (c *column) unavailable() string {
	if c.runtime == "io.containerd.rkt-nspawn.v1" && !present("systemd-nspawn") {
		return "systemd-nspawn, of Debian's systemd-container, is not installed"
	}
	if c.shims == earlierDir {
		if _, err := os.Stat(earlierDir); err != nil {
			return "the repository's history is not there"
		}
	}
	return ""
}

// open starts the column's containerd, once.
func (c *column) open() error {
	c.once.Do(func() { c.err = c.start(context.Background()) })
	return c.err
}

func (c *column) start(ctx context.Context) (err error) {
	short := c.short()
	dir := filepath.Join(columnsDir, short)
	if c.canary, err = newCanary(filepath.Join("/opt/canary", short)); err != nil {
		return err
	}
	c.daemon, err = daemon.Start(ctx, daemon.Options{
		Dir: dir, Programs: programsDir, Shims: []string{cmp.Or(c.shims, programsDir), c.runc},
		Env: []string{"RKT_DATA_DIR=" + c.dataDir()}, Namespace: "hostile-" + short, LogLevel: "info",
	})
	if err != nil {
		return err
	}
	images, err := c.images()
	if err != nil {
		return err
	}
	archive := filepath.Join(dir, "images.tar")
	if err := image.WriteFile(archive, images...); err != nil {
		return err
	}
	defer os.Remove(archive)
	if out, err := c.daemon.Ctr(ctx, "image", "import", archive).CombinedOutput(); err != nil {
		return fmt.Errorf("import images: %w: %s", err, out)
	}
	c.client, err = c.daemon.Client()
	return err
}

// short is a name for paths.
func (c *column) short() string {
	for i, other := range columns {
		if other == c {
			return fmt.Sprint("c", i)
		}
	}
	panic("a column that is none")
}

func (c *column) dataDir() string { return filepath.Join(columnsDir, c.short(), "rkt") }

func (c *column) close() error {
	if c.daemon == nil {
		return nil
	}
	if c.client != nil {
		c.client.Close()
	}
	return c.daemon.Stop()
}

// id is one that no other container of the column has.
func (c *column) id() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	return fmt.Sprint("c", c.serial)
}

func token() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}
