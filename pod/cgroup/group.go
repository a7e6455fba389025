package cgroup

import (
	"fmt"
	"os"
	"sync"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// Record is a cgroup as it is kept on disk: enough to kill and remove it.
type Record struct {
	Version int               `json:"version"` // of cgroups: 1 or 2
	Path    string            `json:"path"`    // below the root of every hierarchy
	Dirs    map[string]string `json:"dirs"`    // controller to directory; "" on version 2
	// Unified is the directory that an OCI runtime makes on a hybrid host beside those
	// of the version 1 controllers. Create makes none there.
	Unified string `json:"unified,omitempty"`
	// Inode is that of the first directory made. The kernel gives no two cgroups the
	// same one.
	Inode uint64 `json:"inode,omitempty"`
	// Placeholder keeps the scope that the cgroup is in, if it is in one.
	Placeholder *Placeholder `json:"placeholder,omitempty"`
}

// Placeholder is a process.
type Placeholder struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"starttime"`
}

// Group is an app's cgroup. Its methods may be called concurrently, but for
// Remove, after which only Record and what reads it may be.
type Group struct {
	record Record
	dirs   []string // of record, without repetition

	// lock is the directory, locked for as long as the process that made the
	// cgroup wants it, or nil in a Group from a Record. It tells a cgroup that
	// no process has entered yet from one that was left behind.
	lock *os.File

	updating sync.Mutex
	limits   *specs.LinuxResources // in effect, as far as this process set them
}

func newGroup(r Record, lock *os.File) *Group {
	return &Group{record: r, dirs: distinct(r.Dirs), lock: lock, limits: &specs.LinuxResources{}}
}

// FromRecord returns a cgroup that another process has made. A record that cannot be of
// an app's cgroup is refused: whoever is in the cgroup is going to be killed.
func FromRecord(r Record) (*Group, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("record of cgroup %q: %w", r.Path, err)
	}
	return newGroup(r, nil), nil
}

// Replaced reports whether the cgroup of a record has gone and another one, which was
// made since then, has its path.
func (g *Group) Replaced() bool {
	var st unix.Stat_t
	err := unix.Stat(g.record.Dirs[primary(g.record.Version)], &st)
	return err == nil && g.record.Inode != 0 && st.Ino != g.record.Inode
}

// inode returns the inode of an open directory, or 0.
func inode(dir *os.File) uint64 {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return 0
	}
	return st.Ino
}

// Record returns what FromRecord needs.
func (g *Group) Record() Record { return g.record }

// Path returns the path that the cgroup has in effect. It differs from what was
// asked for if somebody else's processes were there.
func (g *Group) Path() string { return g.record.Path }

// Version returns 1 or 2.
func (g *Group) Version() int { return g.record.Version }

// Dir returns the directory of a controller, or "" if it is not mounted. On
// version 2 it is the same one for all.
func (g *Group) Dir(controller string) string {
	if g.record.Version == 2 {
		return g.record.Dirs[""]
	}
	return g.record.Dirs[controller]
}

// ABI returns what a stage1 is told of the cgroup.
func (g *Group) ABI() *abi.Cgroup {
	return &abi.Cgroup{Version: g.record.Version, Dirs: g.dirs}
}

// setter is the part of the library's managers that is used here.
type setter interface {
	Apply(pid int) error
	Set(*cgroups.Resources) error
}

func (g *Group) manager(r *cgroups.Resources) (setter, error) {
	config := &cgroups.Cgroup{Path: g.record.Path, Resources: r}
	if g.record.Version == 2 {
		return fs2.NewManager(config, g.record.Dirs[""])
	}
	return fs.NewManager(config, g.record.Dirs)
}
