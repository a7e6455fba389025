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
	// unified is the root of the version 2 hierarchy of a hybrid host, or empty. Controllers may
	// be missing in it. A container must have a cgroup there all the same: container root may mount
	// the hierarchy in namespaces of its own, and then sees everything below its own cgroup.
	unified string
	// systemd is nil if systemd does not run.
	systemd units
}

// detected is the layout of this host.
var detected struct {
	mu    sync.Mutex
	names []string // of the hierarchies that the kernel had
	*hierarchies
}

// host returns the layout of this host. It is detected again when the kernel has other
// hierarchies than before: programs such as network plugins mount one at any time, and from then
// on containers can mount it, too.
func host() (*hierarchies, error) {
	own, err := proc.ReadOnce("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("look for the cgroup hierarchies: %w", err)
	}
	names := namesIn(own)
	detected.mu.Lock()
	defer detected.mu.Unlock()
	if detected.hierarchies != nil && slices.Equal(detected.names, names) {
		return detected.hierarchies, nil
	}
	h, err := detect(names)
	if err != nil {
		return nil, err
	}
	detected.names, detected.hierarchies = names, h
	return h, nil
}

func detect(names []string) (*hierarchies, error) {
	h, err := detectRoots(names)
	if err == nil && systemdRuns() {
		h.systemd = &systemd{}
	}
	return h, err
}

// detectRoots finds the hierarchies with these names.
func detectRoots(names []string) (*hierarchies, error) {
	if cgroups.IsCgroup2UnifiedMode() {
		return &hierarchies{version: 2, roots: map[string]string{"": fs2.UnifiedMountpoint}}, nil
	}
	h := &hierarchies{version: 1}
	if !h.usualRoots(names) {
		if err := h.searchRoots(); err != nil {
			return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
		}
	}
	if _, ok := h.roots["devices"]; !ok {
		return nil, fmt.Errorf("the devices cgroup is not mounted: a container's access to devices could not be limited")
	}
	return h, h.detectBlkio()
}

// usualRoot is where hosts mount the hierarchies of version 1, each in a directory of its own.
const usualRoot = "/sys/fs/cgroup"

// unifiedName is the name of the version 2 hierarchy among those of version 1.
const unifiedName = ""

// usualRoots sets the directory of each of these hierarchies, as the list of mounts has them. The
// library looks for each controller by itself, which takes five times as many system calls, and
// knows neither all controllers nor all named hierarchies. usualRoots returns false if there is
// anything unusual.
func (h *hierarchies) usualRoots(names []string) bool {
	f, err := proc.OpenFile("/proc/self/mountinfo", os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	roots, err := parseRoots(f, names, visible)
	if err != nil {
		return false
	}
	h.unified = roots[unifiedName]
	delete(roots, unifiedName)
	h.roots = roots
	return roots["devices"] != ""
}

// visible reports whether no other mount hides the hierarchy that is mounted at dir.
func visible(name, dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && int64(st.Type) == magic(name)
}

// magic returns the type of the file system of a hierarchy of a host with version 1.
func magic(name string) int64 {
	if name == unifiedName {
		return unix.CGROUP2_SUPER_MAGIC
	}
	return unix.CGROUP_SUPER_MAGIC
}

// namesIn returns the controllers and named hierarchies in a text of the form of
// /proc/PID/cgroup (cgroups(7)). Those of version 1 are all that are in use. Version 2 is among them
// as unifiedName once it was mounted.
func namesIn(own []byte) (names []string) {
	for line := range strings.Lines(string(own)) {
		_, rest, _ := strings.Cut(line, ":")
		of, _, found := strings.Cut(rest, ":")
		if found {
			names = append(names, strings.Split(of, ",")...)
		}
	}
	return names
}

// parseRoots finds in a text of the form of mountinfo (proc_pid_mountinfo(5)) the directories of
// hierarchies, and reads no further when it has those that are wanted: hosts mount them at boot, and
// each pod adds mounts, of which the kernel makes the text when it is read. It makes no garbage of other
// lines. Of several mounts of a hierarchy that are usable the first one below usualRoot counts, as with the
// library, or else the first one of the whole hierarchy.
func parseRoots(mountinfo io.Reader, wanted []string, usable func(name, dir string) bool) (map[string]string, error) {
	roots, elsewhere := map[string]string{}, map[string]string{}
	missing := func(name string) bool { return roots[name] == "" }
	for r := bufio.NewReader(mountinfo); slices.ContainsFunc(wanted, missing); {
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
		mount, super, found := bytes.Cut(bytes.TrimSuffix(whole, []byte("\n")), []byte(" - cgroup"))
		if !found {
			continue
		}
		fields := strings.Fields(string(mount))
		if len(fields) < 5 {
			continue
		}
		within, dir := fields[3], unescaped.Replace(fields[4])
		to := roots
		if filepath.Dir(dir) != usualRoot {
			if to = elsewhere; within != "/" {
				continue
			}
		}
		for _, name := range mountedNames(string(super)) {
			if slices.Contains(wanted, name) && to[name] == "" && usable(name, dir) {
				to[name] = dir
			}
		}
	}
	for name, dir := range elsewhere {
		if roots[name] == "" {
			roots[name] = dir
		}
	}
	return roots, nil
}

// unescaped replaces the escapes of a path in mountinfo.
var unescaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// mountedNames returns the names of a hierarchy by the rest of its line in mountinfo, after
// " - cgroup". The controllers of version 1 are among the options of the mount.
func mountedNames(super string) []string {
	kind, rest, _ := strings.Cut(super, " ")
	switch kind {
	case "":
		_, options, _ := strings.Cut(rest, " ") // the source
		return strings.Split(options, ",")
	case "2":
		return []string{unifiedName}
	}
	return nil
}

// searchRoots makes the library search for the directories of the hierarchies.
func (h *hierarchies) searchRoots() error {
	m, err := fs.NewManager(&cgroups.Cgroup{Path: "/x", Resources: &cgroups.Resources{SkipDevices: true}}, nil)
	if err != nil {
		return err
	}
	h.roots = map[string]string{}
	for name, dir := range m.GetPaths() {
		if name == unifiedName {
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
	r.unify(h, path)
	return r
}

// unify adds the directory in the version 2 hierarchy of a hybrid host, at a path below its root.
func (r *Record) unify(h *hierarchies, path string) {
	if h.unified != "" {
		r.Unified, r.UnifiedMade = filepath.Join(h.unified, path), true
	}
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
