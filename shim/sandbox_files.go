package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/sandbox"
)

// shmSize is the size of a pod's /dev/shm, in bytes, as containerd's CRI has it.
const shmSize = 64 << 20

// Where containerd's CRI looks, below its root and its state directory, for what a
// pod's containers get from their sandbox.
const (
	criDir       = "io.containerd.grpc.v1.cri"
	sandboxesDir = "sandboxes"
)

// criFiles makes /etc/hostname, /etc/hosts, /etc/resolv.conf and /dev/shm for the
// containers of a pod. They are in the pod, and links lead there from where
// containerd looks: it removes what it finds there and does not know when it is
// restarted, and the containers that come after that get the same files.
func criFiles(c *pod.SandboxConfig, config *sandbox.PodSandboxConfig) error {
	root, state, err := criDirs(c.Bundle, c.ID)
	if err != nil {
		return err
	}
	link := func(dir, name string) string {
		if dir == "" {
			return ""
		}
		return filepath.Join(dir, name)
	}
	hostname := config.GetHostname()
	if hostname == "" {
		if hostname, err = os.Hostname(); err != nil {
			return err
		}
	}
	hosts, err := copyOf("/etc/hosts")
	if err != nil {
		return err
	}
	resolv, err := resolvConf(config.GetDnsConfig())
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"hostname": []byte(hostname + "\n"), "hosts": hosts, "resolv.conf": resolv} {
		c.Files = append(c.Files, pod.SandboxFile{Name: name, Content: content, Link: link(root, name)})
	}
	if config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetIpc() != sandbox.NamespaceMode_NODE {
		c.Shm = pod.SandboxShm{Size: shmSize, Link: link(state, "shm")}
	}
	return nil
}

// criDirs finds where containerd's CRI looks for what is of a sandbox, from its
// bundle, which is STATE/PLUGIN/NAMESPACE/ID and has a link to
// ROOT/PLUGIN/NAMESPACE/ID. In a bundle that somebody else has made there is no link,
// and nobody to look.
func criDirs(bundle, id string) (root, state string, err error) {
	work, err := os.Readlink(filepath.Join(bundle, "work"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("find containerd's root directory: %w", err)
	}
	of := func(dir string) string { return filepath.Join(dir, "../../..", criDir, sandboxesDir, id) }
	return of(work), of(bundle), nil
}

// copyOf reads a file of the host that need not be there.
func copyOf(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return content, err
}

// resolvConf renders a pod's DNS configuration. Without one it is the host's.
func resolvConf(dns *sandbox.DNSConfig) ([]byte, error) {
	if dns == nil {
		return copyOf("/etc/resolv.conf")
	}
	var b strings.Builder
	if s := dns.GetSearches(); len(s) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(s, " "))
	}
	for _, server := range dns.GetServers() {
		fmt.Fprintf(&b, "nameserver %s\n", server)
	}
	if o := dns.GetOptions(); len(o) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(o, " "))
	}
	return []byte(b.String()), nil
}

// selinuxLabel returns the label of the pod's holder where SELinux is in force:
// what was asked for, in containers' default one. A privileged pod is not
// confined.
func selinuxLabel(s *sandbox.LinuxSandboxSecurityContext) string {
	var st unix.Statfs_t
	const magic = 0xf97cff8c // SELINUX_MAGIC
	if err := unix.Statfs("/sys/fs/selinux", &st); err != nil || uint32(st.Type) != magic || s.GetPrivileged() {
		return ""
	}
	return labelOf(s.GetSelinuxOptions())
}

func labelOf(o *sandbox.SELinuxOption) string {
	if o == nil {
		return ""
	}
	parts := []string{"system_u", "system_r", "container_t", "s0"}
	for i, asked := range []string{o.GetUser(), o.GetRole(), o.GetType(), o.GetLevel()} {
		if asked != "" {
			parts[i] = asked
		}
	}
	return strings.Join(parts, ":")
}
