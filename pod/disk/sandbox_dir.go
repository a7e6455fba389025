package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Names of a sandbox's files in the pod directory, and their modes.
const (
	sandboxFile = "sandbox.json"
	sandboxDir  = "sandbox"   // has the files of Sandbox.Files, and those below
	shmName     = "shm"       // a tmpfs
	userName    = "user"      // the pod's user namespace, pinned
	holderName  = "holder"    // an OCI bundle
	linkMode    = 0o755       // of directories in which links are made
	fileMode    = 0o644       // of files that apps have to read
	shmMode     = "mode=1777" // as /dev/shm has everywhere
)

// Sandbox describes the files of a sandbox.
type Sandbox struct {
	ID          string
	Bundle      string            // absolute; rkt.json is written into it
	CgroupsPath string            // of the holder, as the OCI spec names it
	Annotations map[string]string // of the pod; ours are recorded, for people

	// Files that apps see, and a tmpfs for their /dev/shm.
	Files []SandboxFile
	Shm   SandboxShm
}

// SandboxFile is a file in the pod directory that apps see.
type SandboxFile struct {
	Name    string
	Content []byte
	Link    string // absolute path of a link to the file; empty: no link
}

// SandboxShm is a tmpfs in the pod directory.
type SandboxShm struct {
	Size int64  // in bytes; 0: no tmpfs
	Link string // absolute path of a link to it; empty: no link
}

// sandboxRecord is $pod/sandbox.json. As long as the file exists, the pod exists
// without apps.
type sandboxRecord struct {
	Version     int               `json:"version"`
	ID          string            `json:"id"`
	Bundle      string            `json:"bundle"`
	CgroupsPath string            `json:"cgroupsPath,omitempty"` // of the holder, as the OCI spec names it
	Cgroup      *cgroup.Record    `json:"cgroup,omitempty"`
	Links       []string          `json:"links,omitempty"` // paths outside of the pod directory
	Holder      *ProcessRecord    `json:"holder,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"` // ours
}

// SandboxFiles is a sandbox on disk. Only one goroutine at a time may change it.
type SandboxFiles struct {
	dir    *Dir
	record sandboxRecord
}

// NewSandboxFiles records the sandbox in the pod directory and in the sandbox's
// bundle, before any other file of it is made.
func (d *Dir) NewSandboxFiles(c Sandbox) (*SandboxFiles, error) {
	f := &SandboxFiles{dir: d, record: sandboxRecord{
		Version: recordVersion, ID: c.ID, Bundle: c.Bundle, CgroupsPath: c.CgroupsPath,
		Annotations: ours(c.Annotations),
	}}
	for _, file := range c.Files {
		if file.Link != "" {
			f.record.Links = append(f.record.Links, file.Link)
		}
	}
	if c.Shm.Link != "" {
		f.record.Links = append(f.record.Links, c.Shm.Link)
	}
	boot, err := proc.BootID()
	if err != nil {
		return nil, err
	}
	if err := f.write(); err != nil {
		return nil, err
	}
	err = withRoot(c.Bundle, func(bundle *os.Root) error {
		return writeRecord(bundle, bundleFile, bundleRecord{Version: recordVersion, BootID: boot, DataDir: d.store.dir, Pod: d.uuid})
	})
	d.store.Fault("write " + bundleFile)
	return f, err
}

// openSandbox reads the sandbox that another process has recorded. The error is
// fs.ErrNotExist if the pod has no sandbox.
func (d *Dir) openSandbox() (*SandboxFiles, error) {
	f := &SandboxFiles{dir: d}
	return f, readRecord(d.root, sandboxFile, &f.record)
}

func (f *SandboxFiles) write() error {
	err := writeRecord(f.dir.root, sandboxFile, f.record)
	f.dir.store.Fault("write " + sandboxFile)
	return err
}

// SetCgroup records the cgroup of the holder.
func (f *SandboxFiles) SetCgroup(c cgroup.Record) error {
	f.record.Cgroup = &c
	return f.write()
}

// SetHolder records the holder.
func (f *SandboxFiles) SetHolder(pid int, start uint64) error {
	f.record.Holder = &ProcessRecord{PID: pid, StartTime: start}
	return f.write()
}

// path returns the present path of a file of the sandbox.
func (f *SandboxFiles) path(name string) string {
	return filepath.Join(f.dir.Path(), sandboxDir, name)
}

// HolderBundle returns the present path of the holder's OCI bundle.
func (f *SandboxFiles) HolderBundle() string { return f.path(holderName) }

// Make writes the files that apps of the pod see, and mounts the tmpfs for
// /dev/shm.
func (f *SandboxFiles) Make(c Sandbox) error {
	if err := os.MkdirAll(f.path(holderName), 0o755); err != nil {
		return err
	}
	for _, file := range c.Files {
		if err := os.WriteFile(f.path(file.Name), file.Content, fileMode); err != nil {
			return err
		}
		if err := os.Chmod(f.path(file.Name), fileMode); err != nil { // independent of the umask
			return err
		}
	}
	f.dir.store.Fault("write files of the sandbox")
	if c.Shm.Size == 0 {
		return nil
	}
	if err := os.Mkdir(f.path(shmName), 0o755); err != nil {
		return err
	}
	data := fmt.Sprintf("%s,size=%d", shmMode, c.Shm.Size)
	if err := unix.Mount("shm", f.path(shmName), "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount the pod's /dev/shm: %w", err)
	}
	f.dir.store.Fault("mount shm")
	return nil
}

// PinUser makes a file that refers to a user namespace: the one that owns the namespace
// at the path of.
func (f *SandboxFiles) PinUser(of string) (path string, err error) {
	ns, err := os.Open(of)
	if err != nil {
		return "", fmt.Errorf("user namespace of the pod: %w", err)
	}
	defer ns.Close()
	fd, err := unix.IoctlRetInt(int(ns.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return "", fmt.Errorf("user namespace that owns %s: %w", of, err)
	}
	defer unix.Close(fd)
	path = f.path(userName)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return "", err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), path, "", unix.MS_BIND, ""); err != nil {
		return "", fmt.Errorf("pin the user namespace that owns %s: %w", of, err)
	}
	f.dir.store.Fault("pin the user namespace")
	return path, nil
}

// Link makes the links that are missing: the clean-up of another daemon may have
// removed links that it did not know.
func (f *SandboxFiles) Link(c Sandbox) error {
	for _, file := range c.Files {
		if err := f.linkTo(file.Link, f.path(file.Name)); err != nil {
			return err
		}
	}
	return f.linkTo(c.Shm.Link, f.path(shmName))
}

func (f *SandboxFiles) linkTo(link, target string) error {
	if link == "" {
		return nil
	}
	if there, err := os.Readlink(link); err == nil && there == target {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(link), linkMode); err != nil {
		return err
	}
	err := os.Symlink(target, link)
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%s is not this pod's: %w", link, err)
	}
	f.dir.store.Fault("link")
	return err
}

// Unlink removes the links, and the directories that are empty after that.
func (f *SandboxFiles) Unlink() error {
	var errs []error
	for _, link := range f.record.Links {
		target, err := os.Readlink(link)
		if err == nil && strings.Contains(target, f.dir.uuid) {
			errs = append(errs, os.Remove(link))
		}
		// This fails, as it should, if another program has put a file into the
		// directory.
		_ = os.Remove(filepath.Dir(link))
	}
	f.dir.store.Fault("unlink")
	return errors.Join(errs...)
}

// Remove removes everything of the sandbox except the pod directory. The holder and
// the apps must have ended. Remove is idempotent.
func (f *SandboxFiles) Remove(ctx context.Context, group *cgroup.Group) error {
	if group != nil {
		if err := group.End(ctx); err != nil {
			return err
		}
		f.dir.store.Fault("remove cgroup of the sandbox")
	}
	if err := f.Unlink(); err != nil {
		return err
	}
	err := f.dir.root.Remove(sandboxFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f.dir.store.Fault("remove " + sandboxFile)
	return nil
}

// RemoveBacklink removes rkt.json from the sandbox's bundle.
func (f *SandboxFiles) RemoveBacklink() error { return f.backlink().remove() }

// backlink returns the record in the sandbox's bundle that names the pod.
func (f *SandboxFiles) backlink() backlink { return backlink{f.record.Bundle, f.dir.uuid, ""} }
