package integration

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/daemon"
)

// release is a containerd that is in use.
type release struct {
	name     string // in the names of tests
	version  string // prefix of the version in the output of `ctr --version`
	old      bool   // see daemon.Options
	programs func(ctx context.Context, log io.Writer) (string, error)
}

// releases are the releases of containerd under which the shim is tested. All cases run under
// the first one of -releases, and those that eachRelease marks under the others as well.
var releases = []release{
	{"2.4", "2.4.", false, binaries.Containerd},
	{"1.7", "1.7.", true, binaries.Containerd17},
	{"1.6", "1.6.", true, binaries.DebianContainerd},
}

func findRelease(name string) (release, error) {
	i := slices.IndexFunc(releases, func(r release) bool { return r.name == name })
	if i < 0 {
		return release{}, fmt.Errorf("unknown release %q of containerd: 2.4, 1.7 or 1.6", name)
	}
	return releases[i], nil
}

// errAbsent means that a release is not available on this machine.
var errAbsent = errors.New("the release is not to be had here")

// find returns the directory of a release's programs.
func (r release) find(ctx context.Context) (string, error) {
	programs, err := r.programs(ctx, os.Stderr)
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%w: containerd %s is Debian's package: %w", errAbsent, r.name, err)
	}
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(programs, "ctr"), "--version").Output()
	if err != nil {
		return "", err
	}
	said := strings.Fields(string(out))
	if version := said[len(said)-1]; !strings.HasPrefix(version, r.version) {
		return "", fmt.Errorf("%w: what should be containerd %s is %s", errAbsent, r.name, version)
	}
	return programs, nil
}

// older is a column under another release. Its containerd is started when the first case needs
// it.
type older struct {
	runtime string
	release release

	asked bool
	col   *column
	err   error
}

func (o *older) name() string { return o.runtime + "@" + o.release.name }

func (o *older) column(t *testing.T) *column {
	t.Helper()
	if !o.asked {
		o.asked = true
		o.col, o.err = openColumn(context.Background(), o.runtime, o.release)
	}
	if errors.Is(o.err, errAbsent) {
		t.Skip(o.err)
	}
	if o.err != nil {
		t.Fatal(o.err)
	}
	return o.col
}

// eachRelease is eachRuntime, under every containerd.
func eachRelease(t *testing.T, test func(t *testing.T, c *column)) {
	t.Helper()
	eachRuntime(t, test)
	eachOlder(t, allColumns(), test)
}

// eachReleaseOfOurs is eachOfOurs, under every containerd.
func eachReleaseOfOurs(t *testing.T, test func(t *testing.T, c *column)) {
	t.Helper()
	eachOfOurs(t, test)
	eachOlder(t, ourColumns(), test)
}

func eachOlder(t *testing.T, names []string, test func(t *testing.T, c *column)) {
	t.Helper()
	for _, o := range suite.older {
		if !slices.Contains(names, o.runtime) {
			continue
		}
		t.Run(o.name(), func(t *testing.T) {
			t.Parallel()
			c := o.column(t)
			t.Cleanup(func() { c.cleanUp(t) })
			test(t, c)
		})
	}
}

// sockets returns the paths where the shims of an old containerd would listen: in a directory
// that all containerds share, under names that depend on the id of a container or group.
func (c *column) sockets() []string {
	if !c.release.old {
		return nil
	}
	var paths []string
	for i := range c.serial {
		for _, id := range []string{fmt.Sprintf("c%d", i+1), fmt.Sprintf("group-c%d", i+1)} {
			name := sha256.Sum256([]byte(filepath.Join(c.daemon.Address(), c.daemon.Namespace(), id)))
			paths = append(paths, fmt.Sprintf("/run/containerd/s/%x", name))
		}
	}
	return paths
}

// options returns the options of a daemon of this release, in a directory of the suite.
func (r release) options(dir, programs, namespace string) daemon.Options {
	return daemon.Options{
		Dir:       filepath.Join(suite.dir, dir),
		Programs:  programs,
		Env:       []string{"RKT_DATA_DIR=" + dataDir(filepath.Join(suite.dir, dir))},
		Namespace: namespace,
		Old:       r.old,
	}
}
