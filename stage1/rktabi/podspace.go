package rktabi

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable/launch"
)

// fits refuses an app that asks for another network or hostname than the pod's first
// process has, or for more capabilities, because all apps of an rkt pod share these. An app
// that asks for a new network gets the pod's. Kernel parameters are set for all apps of the
// pod.
func (s *mutable) fits(spec *specs.Spec, leader int) error {
	if told := s.hostname(); spec.Hostname != "" && spec.Hostname != told && !s.MayIgnore("/hostname") {
		return s.Refused(fmt.Sprintf("/hostname: the pod has the one of its first app, %q, and cannot get %q", told, spec.Hostname), errdefs.ErrFailedPrecondition)
	}
	if err := sameNetwork(immutable.Network(spec), leader); err != nil {
		return s.Refused(fmt.Sprintf("/linux/namespaces: %v", err), errdefs.ErrFailedPrecondition)
	}
	if err := s.grants(spec.Process, leader); err != nil {
		return err
	}
	if spec.Linux == nil || len(spec.Linux.Sysctl) == 0 {
		return nil
	}
	if err := setSysctl(leader, spec.Linux.Sysctl); err != nil {
		return s.Refused(fmt.Sprintf("/linux/sysctl: %v", err), err)
	}
	return nil
}

// grants refuses an app with capabilities that the stage1 has dropped for the whole pod.
func (s *mutable) grants(p *specs.Process, leader int) error {
	if p == nil || p.Capabilities == nil || s.MayIgnore("/process/capabilities") {
		return nil
	}
	ours, err := boundingSet(os.Getpid())
	if err != nil {
		return err
	}
	theirs, err := boundingSet(leader)
	if err != nil {
		return err
	}
	for i, name := range abi.Capabilities() {
		if ours&^theirs&(1<<i) != 0 && slices.Contains(p.Capabilities.Bounding, name) {
			return s.Refused(fmt.Sprintf("/process/capabilities: no app of the pod can have %s", name), errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}

// boundingSet returns the bounding set of a process.
func boundingSet(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "\nCapBnd:\t")
	set, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseUint(set, 16, 64)
}

// hostname returns the hostname that `run` was given.
func (s *mutable) hostname() string {
	p := s.launched()
	if p == nil {
		return ""
	}
	return immutable.SpecOf(&p.Call.Call).Hostname
}

func sameNetwork(wanted string, leader int) error {
	pods := filepath.Join("/proc", strconv.Itoa(leader), "ns/net")
	if wanted == launch.NewNamespace {
		_, err := os.Stat(pods)
		return err
	}
	wanted = cmp.Or(wanted, "/proc/self/ns/net")
	same, err := sameFile(pods, wanted)
	if err == nil && !same {
		err = fmt.Errorf("the network %s is not that of the pod, and apps of a pod share one", wanted)
	}
	return err
}

// setSysctl sets kernel parameters in the namespaces of a pod's first process. It refuses
// parameters of the host.
func setSysctl(leader int, values map[string]string) error {
	return proc.OnThread(func() error {
		for _, name := range []string{"net", "ipc", "uts"} {
			if err := joinNamespace(leader, name); err != nil {
				return err
			}
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			ns := namespaceOfSysctl(key)
			if ns == "" {
				return fmt.Errorf("%s is not a pod's: %w", key, errdefs.ErrInvalidArgument)
			}
			if shared, err := sameFile(fmt.Sprintf("/proc/%d/ns/%s", leader, ns), "/proc/self/ns/"+ns); err != nil || shared {
				return fmt.Errorf("%s: the pod has the host's %s namespace: %w", key, ns, errdefs.ErrInvalidArgument)
			}
			path := filepath.Join("/proc/sys", strings.ReplaceAll(key, ".", "/"))
			if err := os.WriteFile(path, []byte(values[key]), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
}

// joinNamespace moves the calling thread into a namespace of a process.
func joinNamespace(pid int, name string) error {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the pod's %s namespace: %w", name, err)
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, 0); err != nil {
		return fmt.Errorf("enter the pod's %s namespace: %w", name, err)
	}
	return nil
}

// namespaceOfSysctl returns the namespace of a kernel parameter, as /proc/PID/ns names it, or
// "".
func namespaceOfSysctl(key string) string {
	switch {
	case strings.HasPrefix(key, "net."):
		return "net"
	case strings.HasPrefix(key, "fs.mqueue."), strings.HasPrefix(key, "kernel.shm"), strings.HasPrefix(key, "kernel.msg"), key == "kernel.sem":
		return "ipc"
	case key == "kernel.domainname", key == "kernel.hostname":
		return "uts"
	}
	return ""
}
