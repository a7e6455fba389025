package hostile

import (
	"fmt"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pod has the namespaces of a Kubernetes pod.
type pod struct {
	id  string // of the sandbox, if the shim makes it
	pid int    // of the process that holds the namespaces
}

// pod makes a pod whose containers share a PID namespace: without a pause container if the shim
// can do that, and otherwise with one, which has the spec that CRI would give it.
func (l *lab) pod() *pod { return l.podWith(false) }

// podWith makes a pod, with a user namespace of its own or without.
func (l *lab) podWith(users bool) *pod {
	l.t.Helper()
	if l.isRunc() {
		opts := []oci.SpecOpts{oci.WithUIDGID(65535, 65535), oci.WithCapabilities(nil)}
		if users {
			opts = append(opts, userNamespace())
		}
		task := l.attacker(spec{image: plainImage, args: []string{"/bin/attacker", "sleep"}, opts: opts})
		return &pod{pid: int(task.Pid())}
	}
	id := l.id()
	controller := l.client.SandboxController("shim")
	record := sandbox.Sandbox{ID: id, Sandboxer: "shim", Runtime: sandbox.RuntimeOpts{Name: l.runtime}}
	if _, err := l.client.SandboxStore().Create(l.ctx, record); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		// Shutdown may be answered before a slow stage1 has ended.
		for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			err := controller.Shutdown(l.ctx, id)
			if err == nil || strings.Contains(err.Error(), "not found") {
				break
			}
			if time.Now().After(deadline) {
				l.t.Errorf("shut sandbox %s down: %v", id, err)
				break
			}
		}
		if err := l.client.SandboxStore().Delete(l.ctx, id); err != nil {
			l.t.Errorf("forget sandbox %s: %v", id, err)
		}
	})
	if err := controller.Create(l.ctx, record, podOptions(users)...); err != nil {
		l.t.Fatalf("create sandbox: %v", err)
	}
	instance, err := controller.Start(l.ctx, id)
	if err != nil {
		l.t.Fatalf("start sandbox: %v", err)
	}
	return &pod{id: id, pid: int(instance.Pid)}
}

// podOptions are what CRI would tell the shim about a pod.
func podOptions(users bool) []sandbox.CreateOpt {
	if !users {
		return nil
	}
	ids := []*cri.IDMapping{{ContainerId: 0, HostId: 100_000, Length: 65_536}}
	return []sandbox.CreateOpt{sandbox.WithOptions(&cri.PodSandboxConfig{Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{
		NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, UsernsOptions: &cri.UserNamespace{Uids: ids, Gids: ids}},
	}}})}
}

// member makes a container a member of the pod.
func (p *pod) member() []containerd.NewContainerOpts {
	if p == nil || p.id == "" {
		return nil
	}
	return []containerd.NewContainerOpts{containerd.WithSandbox(p.id)}
}

// share makes a container join namespaces of the pod.
func (p *pod) share(types ...specs.LinuxNamespaceType) oci.SpecOpts {
	return joiningPID(p.pid, types...)
}

// joiningPID makes a container join namespaces of a process.
func joiningPID(pid int, types ...specs.LinuxNamespaceType) oci.SpecOpts {
	var opts []oci.SpecOpts
	for _, ns := range types {
		file := string(ns)
		if ns == specs.NetworkNamespace {
			file = "net"
		}
		opts = append(opts, oci.WithLinuxNamespace(specs.LinuxNamespace{Type: ns, Path: fmt.Sprintf("/proc/%d/ns/%s", pid, file)}))
	}
	return oci.Compose(opts...)
}
