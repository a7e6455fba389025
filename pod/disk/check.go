package disk

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
)

var (
	_ checked = (*shimRecord)(nil)
	_ checked = (*AppRecord)(nil)
	_ checked = (*sandboxRecord)(nil)
	_ checked = (*bundleRecord)(nil)
)

func (r *shimRecord) check() error {
	if r.Version == 0 {
		return nil // a directory without shim.json is rkt's
	}
	if err := checkVersion(r.Version); err != nil {
		return err
	}
	if r.Shim.PID < 1 || r.Shim.StartTime == 0 { // in a container the shim may be process 1
		return fmt.Errorf("shim: pid %d, started at %d, cannot be a process", r.Shim.PID, r.Shim.StartTime)
	}
	s := r.Supervisor
	if s == nil {
		return nil
	}
	if s.Leader < 0 || s.Leader == 1 {
		return fmt.Errorf("supervisor: the leader cannot be process %d", s.Leader)
	}
	return checkProcess("supervisor", s.PID, s.StartTime)
}

func (r *AppRecord) check() error {
	if err := checkVersion(r.Version); err != nil {
		return err
	}
	if r.ID == "" || !r.Name.valid() {
		return fmt.Errorf("name: container %q cannot be app %q", r.ID, string(r.Name))
	}
	if !filepath.IsAbs(r.Bundle) {
		return errRelative("bundle", r.Bundle)
	}
	if r.PID != 0 {
		if err := checkProcess("pid", r.PID, r.StartTime); err != nil {
			return err
		}
	}
	if r.Cgroup == nil {
		return nil
	}
	_, err := cgroup.FromRecord(*r.Cgroup)
	return err
}

// check does not look at the cgroup, because it also reads records of other boots. The
// code that uses the cgroup checks it.
func (r *sandboxRecord) check() error {
	if err := checkVersion(r.Version); err != nil {
		return err
	}
	if r.ID == "" {
		return errors.New("id: it is empty")
	}
	for _, link := range r.Links {
		if !filepath.IsAbs(link) {
			return errRelative("links", link)
		}
	}
	if h := r.Holder; h != nil {
		if err := checkProcess("holder", h.PID, h.StartTime); err != nil {
			return err
		}
	}
	if !filepath.IsAbs(r.Bundle) {
		return errRelative("bundle", r.Bundle)
	}
	return nil
}

func (r *bundleRecord) check() error {
	if err := checkVersion(r.Version); err != nil {
		return err
	}
	if !isUUID(r.Pod) {
		return fmt.Errorf("pod: %q is not a UUID", r.Pod)
	}
	if r.App != "" && !r.App.valid() {
		return fmt.Errorf("app: %q is not a name", string(r.App))
	}
	if filepath.Clean(r.DataDir) != r.DataDir || !filepath.IsAbs(r.DataDir) {
		return errRelative("dataDir", r.DataDir)
	}
	return nil
}

func checkVersion(version int) error {
	if version != recordVersion {
		return fmt.Errorf("version: it is %d, and this release knows %d", version, recordVersion)
	}
	return nil
}

// errRelative is the error for a path that depends on the working directory.
func errRelative(field, path string) error {
	return fmt.Errorf("%s: %q is not a clean absolute path", field, path)
}

// checkProcess refuses values that cannot belong to a process of a pod. Without a start
// time, the pid could belong to any process.
func checkProcess(field string, pid int, start uint64) error {
	if pid <= 1 || start == 0 {
		return fmt.Errorf("%s: process %d, started at %d, cannot be one of a pod's", field, pid, start)
	}
	return nil
}
