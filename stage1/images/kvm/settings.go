package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// settings say what machines are made of.
type settings struct {
	Kernel  string `json:"kernel"`  // path of a vmlinux
	Modules string `json:"modules"` // path of the archive of its modules
	// SHA-256 sums of both, in hexadecimal. Without one the file is not checked.
	KernelSum  string `json:"kernelSum"`
	ModulesSum string `json:"modulesSum"`
	Accel      string `json:"accel"` // kvm, tcg or auto
	// CPUs and Memory, in bytes, are what a machine has for itself and the apps without limits.
	CPUs   int   `json:"cpus"`
	Memory int64 `json:"memory"`
	// MaxCPUs and MaxMemory are the most that a machine gets; 0 is what the host has.
	MaxCPUs   int   `json:"maxCPUs"`
	MaxMemory int64 `json:"maxMemory"`
}

// nodeSettings is the operator's file. A file of the image, imageSettings, is used in its place.
const (
	nodeSettings  = "/etc/containerd-shim-rkt/kvm.json"
	imageSettings = "kvm.json"
)

// defaults are for a machine on which the files of `make kvm` are in their place.
var defaults = settings{
	Kernel: "/usr/local/libexec/containerd-shim-rkt/kvm/vmlinux", Modules: "/usr/local/libexec/containerd-shim-rkt/kvm/modules",
	Accel: "kvm", CPUs: 1, Memory: 1 << 30,
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
		return s, err
	}
	return defaults, nil
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
