package cgroup

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // makes the managers handle device rules
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
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
	h := &hierarchies{version: 1}
	var ok bool
	if h.roots, ok = usualRoots(); !ok {
		if err := h.searchRoots(); err != nil {
			return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
		}
	} else if cgroups.IsCgroup2HybridMode() {
		h.unified = filepath.Join(usualRoot, "unified")
	}
	if _, ok := h.roots["devices"]; !ok {
		return nil, fmt.Errorf("the devices cgroup is not mounted: a container's access to devices could not be limited")
	}
	return h, h.detectBlkio()
}

// usualRoot is where hosts mount the hierarchies of version 1, each in a directory of its own.
const usualRoot = "/sys/fs/cgroup"

// controllers lists the controllers of version 1 that the library knows.
var controllers = []string{
	"cpuset", "devices", "memory", "cpu", "cpuacct", "pids", "blkio", "hugetlb", "net_cls", "net_prio", "perf_event", "freezer",
	"rdma", "misc",
}

// usualRoots returns the directory of each controller's hierarchy below usualRoot, as the list
// of mounts has them. The library looks for each controller by itself, which takes five times as
// many system calls. ok is false if there is anything unusual.
func usualRoots() (roots map[string]string, ok bool) {
	own, err := proc.ReadOnce("/proc/self/cgroup")
	if err != nil {
		return nil, false
	}
	f, err := proc.OpenFile("/proc/self/mountinfo", os.O_RDONLY, 0)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	if roots, err = parseRoots(f, wantedRoots(own)); err != nil {
		return nil, false
	}
	for _, dir := range distinct(roots) {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil || int64(st.Type) != unix.CGROUP_SUPER_MAGIC {
			return nil, false // another mount hides it
		}
	}
	return roots, roots["devices"] != ""
}

// wantedRoots returns those of the controllers that this kernel has with version 1, by a text of the
// form of /proc/PID/cgroup (cgroups(7)).
func wantedRoots(own []byte) (wanted []string) {
	for line := range strings.Lines(string(own)) {
		_, rest, _ := strings.Cut(line, ":")
		names, _, _ := strings.Cut(rest, ":")
		for name := range strings.SplitSeq(names, ",") {
			if isRoot(name) {
				wanted = append(wanted, name)
			}
		}
	}
	return wanted
}

// isRoot reports whether the root of a controller is looked for.
func isRoot(controller string) bool {
	return controller == "name=systemd" || slices.Contains(controllers, controller)
}

// parseRoots finds in a text of the form of mountinfo (proc_pid_mountinfo(5)) the hierarchies
// below usualRoot, and reads no further when it has those that are wanted: hosts mount them at boot, and
// each pod adds mounts, of which the kernel makes the text when it is read. It makes no garbage of other
// lines. Of several mounts of a controller the first one counts, as with the library.
func parseRoots(mountinfo io.Reader, wanted []string) (map[string]string, error) {
	roots := map[string]string{}
	missing := func(name string) bool { return roots[name] == "" }
	for r := bufio.NewReader(mountinfo); len(wanted) == 0 || slices.ContainsFunc(wanted, missing); {
		line, err := r.ReadSlice('\n')
		if err == io.EOF {
			break
		}
		whole := line
		for err == bufio.ErrBufferFull { // an overlay has many directories
			whole = nil
			_, err = r.ReadSlice('\n')
		}
		if err != nil {
			return nil, err
		}
		_, super, found := bytes.Cut(bytes.TrimSuffix(whole, []byte("\n")), []byte(" - cgroup "))
		if !found {
			continue
		}
		var point []byte
		n := 0
		for field := range bytes.FieldsSeq(whole) {
			if n++; n == 5 {
				point = field
				break
			}
		}
		_, options, _ := bytes.Cut(super, []byte(" ")) // the source
		if dir := string(point); filepath.Dir(dir) == usualRoot {
			addRoots(roots, dir, string(options))
		}
	}
	return roots, nil
}

// addRoots adds the controllers of a hierarchy, which are among the options of its mount.
func addRoots(roots map[string]string, dir, options string) {
	for name := range strings.SplitSeq(options, ",") {
		if isRoot(name) && roots[name] == "" {
			roots[name] = dir
		}
	}
}

// searchRoots makes the library search for the directories of the hierarchies.
func (h *hierarchies) searchRoots() error {
	m, err := fs.NewManager(&cgroups.Cgroup{Path: "/x", Resources: &cgroups.Resources{SkipDevices: true}}, nil)
	if err != nil {
		return err
	}
	h.roots = map[string]string{}
	for name, dir := range m.GetPaths() {
		// The empty name is the cgroup2 mount of a hybrid host. It has no
		// controllers, and entering it costs a grace period of the kernel.
		if name == "" {
			h.unified = filepath.Dir(dir)
			continue
		}
		h.roots[name] = filepath.Dir(dir)
	}
	return nil
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

// primary returns the controller whose directory is the first one of a cgroup: its lock has the
// inode of that.
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
