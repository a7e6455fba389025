package cgroup

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// All processes in the directories of an accepted record are killed.
func FuzzARecordNamesACgroupOfAnApp(f *testing.F) {
	for _, text := range []string{
		`{"version":1,"path":"/x","dirs":{"devices":"/sys/fs/cgroup/devices/x","memory":"/sys/fs/cgroup/memory/x"}}`,
		`{"version":2,"path":"/a.scope/app","dirs":{"":"/sys/fs/cgroup/a.scope/app"},"placeholder":{"pid":7,"starttime":1}}`,
		`{"version":1,"path":"/","dirs":{"devices":"/sys/fs/cgroup/devices/"}}`,
		`{"version":1,"path":"/home","dirs":{"devices":"/home"}}`,
		`{"version":2,"path":"/unified","dirs":{"":"/sys/fs/cgroup/unified"}}`,
		`{"version":1,"path":"/..","dirs":{"devices":"/sys/fs/cgroup/devices/.."}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var r Record
		if json.Unmarshal(text, &r) != nil {
			return
		}
		g, err := FromRecord(r)
		if err != nil {
			return
		}
		for controller, dir := range r.Dirs {
			if filepath.Clean(dir) != dir || !strings.HasSuffix(dir, r.Path) || r.Path == "/" {
				t.Errorf("%q: %q of the path %q", controller, dir, r.Path)
			}
			// If dir exists, the directory above it must be in a file system of cgroups.
			var st unix.Statfs_t
			err := unix.Statfs(filepath.Dir(dir), &st)
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ENAMETOOLONG) {
				t.Errorf("%q: %v", dir, err)
			}
			if _, gone := os.Lstat(dir); gone == nil && st.Type != unix.CGROUP_SUPER_MAGIC && st.Type != unix.CGROUP2_SUPER_MAGIC {
				t.Errorf("%q: %q is there and no cgroup", controller, dir)
			}
		}
		if p := g.Record().Placeholder; p != nil && (p.PID < 2 || p.StartTime == 0) {
			t.Errorf("placeholder %+v", p)
		}
	})
}
