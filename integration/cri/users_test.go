package cri

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func users() section {
	return section{"Users and user namespaces", []feature{
		{"runAsUser, runAsGroup", runAsUser},
		{"user by name", runAsUsername},
		{"supplemental groups: Merge", groupsMerged},
		{"supplemental groups: Strict", groupsStrict},
		{"the user in the container's status", userStatus},
		{"hostUsers: false", userNamespace},
		{"hostUsers: false, volumes mapped by id", userNamespaceVolumes},
		{"hostUsers: false, several containers and execs", userNamespaceExec},
		{"hostUsers: false, with sysctls and mounts of its own", userNamespacePower},
	}}
}

func itoa(n int) string { return strconv.Itoa(n) }

func id(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }

func runAsUser(t *testing.T, c *column) {
	p := c.pod(t)
	if r := p.inspect(secured(func(s *runtimeapi.LinuxContainerSecurityContext) { s.RunAsUser, s.RunAsGroup = id(1234), id(2345) })); r.UID != 1234 || r.GID != 2345 {
		t.Errorf("uid %d, gid %d", r.UID, r.GID)
	}
	// Without a group the container gets that of the image's /etc/passwd.
	if r := p.inspect(secured(func(s *runtimeapi.LinuxContainerSecurityContext) { s.RunAsUser = id(1000) })); r.UID != 1000 || r.GID != 1000 {
		t.Errorf("uid %d, gid %d", r.UID, r.GID)
	}
}

func runAsUsername(t *testing.T, c *column) {
	p := c.pod(t)
	r := p.inspect(secured(func(s *runtimeapi.LinuxContainerSecurityContext) { s.RunAsUsername = "alice" }))
	if r.UID != 1000 || r.GID != 1000 || !slices.Contains(r.Env, "HOME=/home/alice") {
		t.Errorf("uid %d, gid %d, %v", r.UID, r.GID, r.Env)
	}
	p.expectRefused("no users found", sh("true"), secured(func(s *runtimeapi.LinuxContainerSecurityContext) { s.RunAsUsername = "nobody-knows" }))
}

func withGroups(policy runtimeapi.SupplementalGroupsPolicy) func(*runtimeapi.ContainerConfig) {
	return secured(func(s *runtimeapi.LinuxContainerSecurityContext) {
		s.RunAsUser, s.RunAsGroup = id(1000), id(1000)
		s.SupplementalGroups = []int64{4321}
		s.SupplementalGroupsPolicy = policy
	})
}

// In the image alice is a member of staff, 50.
func groupsMerged(t *testing.T, c *column) {
	p := c.pod(t)
	if r := p.inspect(withGroups(runtimeapi.SupplementalGroupsPolicy_Merge)); !slices.Equal(r.Groups, []int{50, 1000, 4321}) {
		t.Errorf("groups %v", r.Groups)
	}
	// An exec has them, too.
	out := p.run("b", forever(), withGroups(runtimeapi.SupplementalGroupsPolicy_Merge)).exec("id", "-G")
	if got := strings.Fields(out); !slices.Contains(got, "50") || !slices.Contains(got, "4321") {
		t.Errorf("groups of an exec: %s", out)
	}
}

func groupsStrict(t *testing.T, c *column) {
	if r := c.pod(t).inspect(withGroups(runtimeapi.SupplementalGroupsPolicy_Strict)); !slices.Equal(r.Groups, []int{1000, 4321}) {
		t.Errorf("groups %v", r.Groups)
	}
}

func userStatus(t *testing.T, c *column) {
	one := c.pod(t).run("a", forever(), withGroups(runtimeapi.SupplementalGroupsPolicy_Strict))
	u := one.status().GetUser().GetLinux()
	if u.GetUid() != 1000 || u.GetGid() != 1000 || !slices.Contains(u.GetSupplementalGroups(), 4321) {
		t.Errorf("user %v", u)
	}
}

// firstID is the first id on the node of a pod with a user namespace.
const firstID = 200000

func idMapping() []*runtimeapi.IDMapping {
	return []*runtimeapi.IDMapping{{HostId: firstID, ContainerId: 0, Length: 65536}}
}

func userNamespaceOption() *runtimeapi.UserNamespace {
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: idMapping(), Gids: idMapping()}
}

// noUserNamespaces is the reason why tests of user namespaces are skipped with nspawn.
const noUserNamespaces = "systemd-nspawn joins no user namespace: the stage1 declares none, and refuses one by name"

func (c *column) needUserNamespaces(t *testing.T) {
	t.Helper()
	if !c.features(t).GetUserNamespaces() {
		if c.isNspawn() {
			if _, err := c.tryPod(t, withNamespaces(&runtimeapi.NamespaceOption{UsernsOptions: userNamespaceOption()})); err == nil || !strings.Contains(err.Error(), "/linux/uidMappings") {
				t.Errorf("a pod that asks for one all the same: %v", err)
			}
			c.skip(t, noUserNamespaces)
		}
		c.skip(t, "the runtime does not declare user namespaces with id-mapped mounts")
	}
}

// withUserNamespace makes a pod with hostUsers: false.
func (c *column) withUserNamespace(t *testing.T, edits ...func(*runtimeapi.PodSandboxConfig)) *pod {
	t.Helper()
	c.needUserNamespaces(t)
	option := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER, UsernsOptions: userNamespaceOption()}
	return c.pod(t, append([]func(*runtimeapi.PodSandboxConfig){withNamespaces(option)}, edits...)...)
}

func userNamespace(t *testing.T, c *column) {
	p := c.withUserNamespace(t)
	want := fmt.Sprintf("0 %d 65536", firstID)
	out := p.output("a", sh("cat /proc/self/uid_map /proc/self/gid_map; id -u; stat -c %u /bin/busybox; touch /x && stat -c %u /x; ls -ln /proc/1/exe >/dev/null && echo fine"))
	got := lines(out)
	if len(got) != 6 || strings.Join(strings.Fields(got[0]), " ") != want || strings.Join(strings.Fields(got[1]), " ") != want ||
		got[2] != "0" || got[3] != "0" || got[4] != "0" {
		t.Errorf("it wrote:\n%s", out)
	}
	// None of the pod's ids is a user of the node.
	one := p.run("b", forever())
	if out := one.exec("sh", "-c", "hostname; mount -t tmpfs x /tmp 2>&1; true"); !strings.Contains(out, p.config.GetHostname()) {
		t.Errorf("exec: %s", out)
	}
	if a, b := one.namespaceOf("user"), nodeNamespace(t, "user"); a == b {
		t.Error("it is in the node's user namespace")
	}
}

func userNamespaceVolumes(t *testing.T, c *column) {
	p := c.withUserNamespace(t)
	v := volume(t, p)
	v.UidMappings, v.GidMappings = idMapping(), idMapping()
	out := p.output("a", sh("stat -c %u /volume; echo hello >/volume/f; chown 1000:1000 /volume/f; stat -c '%u %g' /volume/f"), mounted(v))
	if out != "0\n1000 1000\n" {
		t.Errorf("inside:\n%s", out)
	}
	if uid, gid := owner(t, v.GetHostPath()+"/f"); uid != 1000 || gid != 1000 {
		t.Errorf("on the node it is of %d:%d", uid, gid)
	}
}

func userNamespaceExec(t *testing.T, c *column) {
	p := c.withUserNamespace(t)
	first := p.run("a", sh("true"))
	first.expectExit(0)
	first.remove()
	a, b := p.run("b", forever()), p.run("c", forever())
	if a.namespaceOf("user") != b.namespaceOf("user") {
		t.Error("two containers of the pod have different user namespaces")
	}
	out := b.exec("sh", "-c", "id -u; cat /proc/self/uid_map")
	if got := strings.Join(strings.Fields(out), " "); got != fmt.Sprintf("0 0 %d 65536", firstID) {
		t.Errorf("exec: %s", out)
	}
	out = p.output("d", sh("id -u; echo x >/dev/stdout; echo y >/dev/shm/y; cat /sys/fs/cgroup/* >/dev/null 2>&1; echo done"),
		secured(func(s *runtimeapi.LinuxContainerSecurityContext) { s.RunAsUser = id(1000) }))
	if out != "1000\nx\ndone\n" {
		t.Errorf("as another user:\n%s", out)
	}
}

// userNamespacePower tests a pod whose container makes a mount that only root of a user
// namespace can make.
func userNamespacePower(t *testing.T, c *column) {
	p := c.withUserNamespace(t, func(config *runtimeapi.PodSandboxConfig) {
		config.Linux.Sysctls = map[string]string{"net.ipv4.ip_local_port_range": "2000 3000"}
	})
	out := p.output("a", sh("cat /proc/sys/net/ipv4/ip_local_port_range; mount -t tmpfs x /tmp && echo mounted"),
		capabilities([]string{"SYS_ADMIN"}, nil), seccomp(&runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}))
	if got := strings.Join(strings.Fields(out), " "); got != "2000 3000 mounted" {
		t.Errorf("it wrote:\n%s", out)
	}
}
