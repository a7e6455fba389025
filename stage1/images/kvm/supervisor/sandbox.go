package supervisor

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// Sandbox is a pod of the Sandbox service. A process in the machine holds the namespaces, and a proxy
// on the host stands for it.
type Sandbox struct {
	inside *abi.Sandbox      // for the machine
	sysctl map[string]string // of the machine's network
	users  *channel.Mappings // of its user namespace, or nil
	group  *abi.Cgroup       // for the proxy
	holder int               // pid in the machine

	// Guarded by Supervisor.mu.
	proxy   *proc.Child
	release *os.File // ends the proxy when it is closed
}

// NewSandbox returns the sandbox that `run` is asked for, or nil if it is asked for none. A sandbox
// that a machine cannot be is an error with exit code 7.
func NewSandbox(r *abi.Request) (*Sandbox, error) {
	if r.Sandbox == nil {
		return nil, nil
	}
	pod := *r.Sandbox
	s := &Sandbox{inside: &pod, group: pod.Cgroup}
	pod.Namespaces = slices.Clone(pod.Namespaces)
	listed := map[specs.LinuxNamespaceType]bool{}
	for i, n := range pod.Namespaces {
		kind := specs.LinuxNamespaceType(n.Type)
		listed[kind] = true
		switch {
		case kind == specs.UserNamespace && len(pod.UIDMappings) > 0 && len(pod.GIDMappings) > 0:
			// The machine makes its own with the same mappings, wherever the host's is.
			s.users = &channel.Mappings{UIDs: pod.UIDMappings, GIDs: pod.GIDMappings}
			pod.Namespaces[i].Path = channel.GuestUser
		case kind == specs.UserNamespace:
			return nil, serve.Unsupported("sandbox.namespaces[%d]: a user namespace without sandbox.uidMappings and gidMappings", i)
		case !slices.Contains(needed, kind):
			return nil, serve.Unsupported("sandbox.namespaces[%d].type: %q is not supported in a machine", i, n.Type)
		case kind != specs.NetworkNamespace && n.Path != "":
			return nil, serve.Unsupported("sandbox.namespaces[%d].path: a machine cannot join %s", i, n.Path)
		}
	}
	for _, kind := range needed {
		if !listed[kind] && kind != specs.MountNamespace { // the holder has its own in any case
			return nil, serve.Unsupported("sandbox.namespaces: without %q the pod would be in the host's, which a machine cannot reach", kind)
		}
	}
	pod.Cgroup = nil
	pod.Namespaces = slices.DeleteFunc(pod.Namespaces, func(n abi.Namespace) bool { return n.Type == string(specs.NetworkNamespace) })
	if s.users != nil {
		pod.Namespaces = append(pod.Namespaces, abi.Namespace{Type: string(specs.NetworkNamespace), Path: channel.GuestNetwork})
	}
	pod.Sysctl, s.sysctl = ofNetwork(pod.Sysctl)
	return s, nil
}

// ofNetwork divides sysctls: those of a network namespace, which are the machine's, and the others.
func ofNetwork(all map[string]string) (others, network map[string]string) {
	others, network = maps.Clone(all), map[string]string{}
	for key, value := range all {
		if strings.HasPrefix(key, "net.") || strings.HasPrefix(key, "net/") {
			network[key] = value
			delete(others, key)
		}
	}
	return others, network
}

// Leader returns the process of the host that is the pod's: the proxy of the holder, which it starts,
// or this process if the pod is no sandbox.
func (s *Supervisor) Leader(ctx context.Context) (abi.Ready, error) {
	pod := s.Sandbox
	if pod == nil {
		start, err := proc.StartTime(os.Getpid())
		return abi.Ready{PID: os.Getpid(), StartTime: start}, err
	}
	if _, err := s.join(ctx, "", pod.users); err != nil { // a network of its own, if the pod has none yet
		return abi.Ready{}, fmt.Errorf("the network of the pod: %w", err)
	}
	proxy, release, err := s.startProxy(ctx, pod.group, nil, nil)
	if err != nil {
		if proxy != nil {
			proxy.Drop()
		}
		return abi.Ready{}, fmt.Errorf("start the proxy of the pod's holder: %w", err)
	}
	s.mu.Lock()
	pod.proxy, pod.release = proxy, release
	s.mu.Unlock()
	proxy.Decide(nil, nil) // stage 0 notices its end
	return abi.Ready{PID: proxy.PID(), StartTime: proxy.StartTime()}, nil
}

// end ends the proxy. The machine has ended.
func (p *Sandbox) end() {
	if p == nil || p.proxy == nil {
		return
	}
	_ = p.release.Close()
	_ = p.proxy.Kill()
	_ = p.proxy.Wait()
}
