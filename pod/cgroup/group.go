package cgroup

import (
	"fmt"
	"maps"
	"os"
	"sync"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// Record is a cgroup as it is kept on disk: enough to kill and remove it.
type Record struct {
	Version int `json:"version"` // of cgroups: 1 or 2
	// Path is below the root of every hierarchy. A relative path is below containerd's own
	// cgroups; it is used if these differ between hierarchies.
	Path string            `json:"path"`
	Dirs map[string]string `json:"dirs"` // controller to directory; "" on version 2
	// Unified is the directory in the version 2 hierarchy of a hybrid host.
	Unified string `json:"unified,omitempty"`
	// UnifiedMade is set if Create makes the directory Unified. Without it, an earlier release has made
	// the cgroup. Then only an OCI runtime may have made that directory, and other containers may be in it.
	UnifiedMade bool `json:"unifiedMade,omitempty"`
	// Inode is the inode of the first directory. No two cgroups ever have the same inode.
	Inode uint64 `json:"inode,omitempty"`
	// Placeholder keeps the scope of the cgroup alive, if the cgroup is in a scope.
	Placeholder *Placeholder `json:"placeholder,omitempty"`
}

// Placeholder is a process that does nothing and keeps a scope alive.
type Placeholder struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"starttime"`
}

// Group is an app's cgroup. Its methods may be called concurrently, except Remove. After
// Remove only Record and the methods that read the record may be called.
type Group struct {
	record Record
	dirs   []string // that Create makes, without repetition
	// lock is the file of the cgroup's lock, locked until the process that made the cgroup removes
	// it or ends; nil in a Group from a Record. An empty cgroup that is locked is waiting for its
	// first process; one that is not locked was abandoned.
	lock *os.File

	updating sync.Mutex
	limits   *specs.LinuxResources // limits that this process has set
}

func newGroup(r Record, lock *os.File) *Group {
	return &Group{record: r, dirs: distinct(r.made()), lock: lock, limits: &specs.LinuxResources{}}
}

// made returns the directories that Create makes, by the names of their hierarchies.
func (r *Record) made() map[string]string {
	if !r.UnifiedMade {
		return r.Dirs
	}
	made := maps.Clone(r.Dirs)
	made[unifiedName] = r.Unified
	return made
}

// Dir returns the first directory, whose inode names the lock of the whole cgroup.
func (r *Record) Dir() string { return r.Dirs[primary(r.Version)] }

// FromRecord returns a cgroup that another process has made. It refuses a record that cannot
// be of an app's cgroup, because all processes in that cgroup will be killed.
func FromRecord(r Record) (*Group, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("record of cgroup %q: %w", r.Path, err)
	}
	return newGroup(r, nil), nil
}

// Replaced reports whether the cgroup of a record was removed and a later cgroup has its
// path.
func (g *Group) Replaced() bool {
	var st unix.Stat_t
	err := unix.Stat(g.record.Dir(), &st)
	return err == nil && g.record.Inode != 0 && st.Ino != g.record.Inode
}

// Record returns the record of the cgroup, for FromRecord.
func (g *Group) Record() Record { return g.record }

// Path returns the path of the cgroup, as Record has it.
func (g *Group) Path() string { return g.record.Path }

// Version returns 1 or 2.
func (g *Group) Version() int { return g.record.Version }

// Dir returns the directory of a controller, or "" if the controller is not mounted. On
// version 2 all controllers have the same directory.
func (g *Group) Dir(controller string) string {
	if g.record.Version == 2 {
		return g.record.Dirs[""]
	}
	return g.record.Dirs[controller]
}

// ABI returns the description of the cgroup for a stage1.
func (g *Group) ABI() *abi.Cgroup {
	c := &abi.Cgroup{Version: g.record.Version, Dirs: distinct(g.record.Dirs)}
	if g.record.UnifiedMade {
		c.Unified = g.record.Unified
	}
	return c
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
