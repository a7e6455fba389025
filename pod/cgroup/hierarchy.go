package cgroup

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // makes the managers handle device rules
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
)

// hierarchies describes the mounts of this host's cgroups.
type hierarchies struct {
	version int
	// roots maps controllers to the directories of their hierarchies. On
	// version 2 there is one, with the empty name.
	roots map[string]string
	// unified is the root of the version 2 hierarchy of a hybrid host, or empty.
	unified string
	// systemd is nil if systemd does not run.
	systemd units
}

// host returns the layout of this host. The layout does not change while a process runs, so
// it is detected once.
var host = sync.OnceValues(detect)

func detect() (*hierarchies, error) {
	h, err := detectRoots()
	if err == nil && systemdRuns() {
		h.systemd = systemd{}
	}
	return h, err
}

func detectRoots() (*hierarchies, error) {
	if cgroups.IsCgroup2UnifiedMode() {
		return &hierarchies{version: 2, roots: map[string]string{"": fs2.UnifiedMountpoint}}, nil
	}
	m, err := fs.NewManager(&cgroups.Cgroup{Path: "/x", Resources: &cgroups.Resources{SkipDevices: true}}, nil)
	if err != nil {
		return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
	}
	h := &hierarchies{version: 1, roots: map[string]string{}}
	for name, dir := range m.GetPaths() {
		// The empty name is the cgroup2 mount of a hybrid host. It has no
		// controllers, and entering it costs a grace period of the kernel.
		if name == "" {
			h.unified = filepath.Dir(dir)
			continue
		}
		h.roots[name] = filepath.Dir(dir)
	}
	if _, ok := h.roots["devices"]; !ok {
		return nil, fmt.Errorf("the devices cgroup is not mounted: a container's access to devices could not be limited")
	}
	return h, h.detectBlkio()
}

// detectBlkio makes the library detect the blkio hierarchy before managers are used
// concurrently: the library stores the result in a variable without a lock.
func (h *hierarchies) detectBlkio() error {
	none := &cgroups.Resources{SkipDevices: true}
	m, err := fs.NewManager(&cgroups.Cgroup{Resources: none}, h.roots)
	if err != nil {
		return err
	}
	return m.Set(none)
}

// dirs returns a cgroup's directory for every controller.
func (h *hierarchies) dirs(path string) map[string]string {
	dirs := make(map[string]string, len(h.roots))
	for name, root := range h.roots {
		dirs[name] = filepath.Join(root, path)
	}
	return dirs
}

// record returns the record of a cgroup at a path.
func (h *hierarchies) record(path string) Record {
	r := Record{Version: h.version, Path: path, Dirs: h.dirs(path)}
	if h.unified != "" {
		r.Unified = filepath.Join(h.unified, path)
	}
	return r
}

// primary returns the controller whose directory is locked for the whole cgroup.
func primary(version int) string {
	if version == 2 {
		return ""
	}
	return "devices"
}

// distinct returns the directories without repetition: controllers that are
// mounted together share one.
func distinct(dirs map[string]string) []string {
	list := make([]string, 0, len(dirs))
	for _, d := range dirs {
		list = append(list, d)
	}
	slices.SortFunc(list, strings.Compare)
	return slices.Compact(list)
}
