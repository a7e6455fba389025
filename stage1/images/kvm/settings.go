package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/supervisor"
)

// settings say what machines are made of.
type settings struct {
	Kernel  string `json:"kernel"`  // path of a vmlinux
	Modules string `json:"modules"` // path of the archive of its modules
	// SHA-256 sums of both, in hexadecimal. Without one the file is not checked.
	KernelSum  string `json:"kernelSum"`
	ModulesSum string `json:"modulesSum"`
	Accel      string `json:"accel"` // kvm, tcg or auto
	// Type is the type of machines; a pod's annotation replaces it.
	Type machine.Type `json:"type"`
	// CPUs and Memory, in bytes, are what a machine has for itself and the apps without limits.
	CPUs   int   `json:"cpus"`
	Memory int64 `json:"memory"`
	// MaxCPUs and MaxMemory are the most that a machine gets; 0 is what the host has.
	MaxCPUs   int   `json:"maxCPUs"`
	MaxMemory int64 `json:"maxMemory"`
	// SavedMachines is the directory of the saved machines in place of whose boot others are restored; "": each machine boots.
	SavedMachines string `json:"savedMachines"`
}

// saves reports whether machines of a size are saved and restored. Pods could ask for any number of other sizes.
func (s *settings) saves(base supervisor.Size) bool {
	return s.SavedMachines != "" && base == supervisor.Size{CPUs: s.CPUs, Memory: s.Memory}
}

// nodeSettings is the operator's file. A file of the image, imageSettings, is used in its place.
const (
	nodeSettings  = "/etc/containerd-shim-rkt/kvm.json"
	imageSettings = "kvm.json"
)

// defaults leave kernel and modules to placed.
var defaults = settings{Accel: "kvm", Type: machine.Q35, CPUs: 1, Memory: 1 << 30}

// places are the directories of kernels: of make install, and of the package containerd-shim-rkt-kvm. The
// shim's links are in PATH in the same order.
func places() []string {
	return []string{"/usr/local/libexec/containerd-shim-rkt/kvm", "/usr/libexec/containerd-shim-rkt/kvm"}
}

// placed returns the settings with the files of the first directory that has a kernel, in place of those
// that are not set. If none has one, the first directory is named.
func (s settings) placed(dirs []string) settings {
	dir := dirs[0]
	for _, d := range dirs {
		if _, err := os.Stat(filepath.Join(d, "vmlinux")); err == nil {
			dir = d
			break
		}
	}
	s.Kernel = cmp.Or(s.Kernel, filepath.Join(dir, "vmlinux"))
	s.Modules = cmp.Or(s.Modules, filepath.Join(dir, "modules"))
	return s
}

// readSettings reads the first of some files that exists, over the defaults.
func readSettings(paths ...string) (settings, error) {
	for _, path := range paths {
		s := defaults
		text, err := readTrusted(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			d := json.NewDecoder(bytes.NewReader(text))
			d.DisallowUnknownFields() // a misspelt sum would be none
			err = d.Decode(&s)
		}
		if err != nil {
			err = fmt.Errorf("settings of machines: %s: %w", path, err)
		}
		return s.placed(places()), err
	}
	return defaults.placed(places()), nil
}

// readTrusted reads a file that only root can have written.
func readTrusted(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Uid != 0 || st.Mode&0o022 != 0 {
		return nil, fmt.Errorf("user %d owns it, its mode is %#o: only root may write it", st.Uid, st.Mode&0o7777)
	}
	text := make([]byte, min(st.Size, 64<<10))
	n, err := f.Read(text)
	return text[:n], err
}
