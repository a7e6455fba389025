package shim

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/sandbox"
	"github.com/rkt/containerd-shim-rkt-v1/wire"
)

// For every message of CRI, the shim makes files only in the pod's directory and in
// containerd's directories, and lists only namespaces that exist.
func FuzzASandboxOfCRIStaysInItsPlace(f *testing.F) {
	for _, c := range []*sandbox.PodSandboxConfig{
		{},
		{Hostname: "h", DnsConfig: &sandbox.DNSConfig{Servers: []string{"192.0.2.1"}, Searches: []string{"a.b"}, Options: []string{"ndots:5"}}},
		{Annotations: map[string]string{"io.containerd.rkt.v1/stage1": "oci"}, Linux: sandbox.LinuxPodSandboxConfig{
			CgroupParent: "/kubepods/pod1", Sysctls: map[string]string{"kernel.shm_rmid_forced": "1"},
			SecurityContext: sandbox.LinuxSandboxSecurityContext{
				SelinuxOptions: &sandbox.SELinuxOption{Type: "t", Level: "s0:c1"},
				NamespaceOptions: sandbox.NamespaceOption{UsernsOptions: &sandbox.UserNamespace{
					Mode: sandbox.ModePod,
					Uids: []*sandbox.IDMapping{{HostId: 100000, Length: 65536}}, Gids: []*sandbox.IDMapping{{HostId: 100000, Length: 65536}},
				}},
			},
		}},
		{Linux: sandbox.LinuxPodSandboxConfig{CgroupParent: "kubepods-a:b.slice"}},
	} {
		text, err := wire.Encode(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, "box", "/run/netns/x")
		f.Add(text, "../../x", "")
	}
	f.Fuzz(func(t *testing.T, options []byte, id, netns string) {
		base := t.TempDir()
		bundle := filepath.Join(base, "state/io.containerd.runtime.v2.task/ns/box")
		if err := os.MkdirAll(bundle, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(base, "root/io.containerd.runtime.v2.task/ns/box"), filepath.Join(bundle, "work")); err != nil {
			t.Fatal(err)
		}
		c, _, err := sandboxConfig(&sandbox.CreateSandboxRequest{
			SandboxId: id, BundlePath: bundle, NetnsPath: netns,
			Options: &anypb.Any{TypeUrl: sandbox.PodSandboxConfigName, Value: options},
		}, false)
		if err != nil {
			return
		}
		links := []string{}
		if c.Shm.Link != "" {
			links = append(links, c.Shm.Link)
		}
		for _, file := range c.Files {
			if !filepath.IsLocal(file.Name) || strings.Contains(file.Name, "/") {
				t.Errorf("file %q", file.Name)
			}
			links = append(links, file.Link)
		}
		for _, link := range links {
			above := filepath.Dir(filepath.Dir(link))
			if filepath.Base(above) != sandboxesDir || filepath.Base(filepath.Dir(above)) != criDir {
				t.Errorf("id %q: link %q is not in a directory of the sandbox", id, link)
			}
		}
		checkNamespaces(t, c)
		if c.CgroupParent != "" && !strings.HasSuffix(c.CgroupsPath, id) {
			t.Errorf("cgroup %q of %q below %q", c.CgroupsPath, id, c.CgroupParent)
		}
	})
}

func checkNamespaces(t *testing.T, c pod.SandboxConfig) {
	t.Helper()
	var kinds []string
	for _, ns := range c.Namespaces {
		if !slices.Contains([]string{"network", "uts", "ipc", "pid", "user"}, ns.Type) || slices.Contains(kinds, ns.Type) {
			t.Errorf("namespaces %v", c.Namespaces)
		}
		kinds = append(kinds, ns.Type)
	}
	mapped := len(c.UIDMappings) > 0 && len(c.GIDMappings) > 0
	if of := c.UserOf != "" || slices.Contains(kinds, "user"); of != mapped {
		t.Errorf("user namespace %v, of %q, with mappings %v and %v", kinds, c.UserOf, c.UIDMappings, c.GIDMappings)
	}
}
