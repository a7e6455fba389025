package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/hold"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// The holder's root and cgroup in the guest.
const (
	holderRoot   = "/run/holder"
	holderCgroup = "/holder"
)

// describeHolder adds the process that holds the namespaces of the pod to the request of the
// supervisor, as stage 0 does on a host.
func describeHolder(r *abi.Request) error {
	program, err := hold.Program()
	if err != nil {
		return err
	}
	if err := hold.Fill(holderRoot, program); err != nil {
		return fmt.Errorf("the root of the pod's holder: %w", err)
	}
	group, err := (cgroup.Maker{}).Create(cgroup.Path{Spec: holderCgroup}, hold.Limits())
	if err != nil {
		return err
	}
	r.Cgroup, r.Rootfs, r.Bundle = group.ABI(), holderRoot, filepath.Dir(holderRoot)
	r.Spec, err = json.Marshal(hold.Spec(holderRoot, r.Sandbox, "", holderCgroup))
	return err
}

// holderEnded ends the machine.
func (a *agent) holderEnded(proc.Exit) {
	fmt.Fprintln(os.Stderr, "agent: the pod's holder has ended")
	a.stop()
}

// setSysctl sets sysctls of the network namespace of this thread.
func setSysctl(values map[string]string) error {
	dir, err := unix.Open("/proc/sys", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /proc/sys: %w", err)
	}
	defer unix.Close(dir)
	for key, value := range values {
		path := key
		if i := strings.IndexAny(key, "./"); i >= 0 && key[i] == '.' { // as sysctl(8) reads it
			path = strings.NewReplacer(".", "/", "/", ".").Replace(key)
		}
		if !strings.HasPrefix(path, "net/") || slices.Contains(strings.Split(path, "/"), "..") {
			return fmt.Errorf("linux.sysctl: %s is not one of the network", key)
		}
		fd, err := unix.Openat2(dir, path, &unix.OpenHow{Flags: unix.O_WRONLY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
		if err == nil {
			_, err = unix.Write(fd, []byte(value))
			unix.Close(fd)
		}
		if err != nil {
			return fmt.Errorf("linux.sysctl: write %s = %q: %w", key, value, err)
		}
	}
	return nil
}
