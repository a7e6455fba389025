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
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/sandbox"
)

// shmSize is the size of a pod's /dev/shm, in bytes, as containerd's CRI has it.
const shmSize = 64 << 20

// Paths below the root and the state directory of containerd's CRI, in which CRI looks for
// the files that a pod's containers get from their sandbox.
const (
	criDir       = "io.containerd.grpc.v1.cri"
	sandboxesDir = "sandboxes"
)

// criFiles adds /etc/hostname, /etc/hosts, /etc/resolv.conf and /dev/shm for the
// containers of a pod. The files are in the pod's directory, and links in containerd's
// directories point to them. When containerd restarts, it removes everything that it does
// not know from its directories. Only the links are lost then, and later containers get
// the same files.
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
	hostname := config.Hostname
	if hostname == "" {
		if hostname, err = os.Hostname(); err != nil {
			return err
		}
	}
	hosts, err := copyOf("/etc/hosts")
	if err != nil {
		return err
	}
	resolv, err := resolvConf(config.DnsConfig)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"hostname": []byte(hostname + "\n"), "hosts": hosts, "resolv.conf": resolv} {
		c.Files = append(c.Files, disk.SandboxFile{Name: name, Content: content, Link: link(root, name)})
	}
	if config.Linux.SecurityContext.NamespaceOptions.Ipc != sandbox.ModeNode {
		c.Shm = disk.SandboxShm{Size: shmSize, Link: link(state, "shm")}
	}
	return nil
}

// criDirs returns the directories of containerd's CRI for a sandbox. It derives them from
// the sandbox's bundle, which is STATE/PLUGIN/NAMESPACE/ID and has a link to
// ROOT/PLUGIN/NAMESPACE/ID. A bundle without that link belongs to another client, which
// has no such directories.
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

// copyOf returns the contents of a file of the host, or nothing if the file does not
// exist.
func copyOf(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return content, err
}

// resolvConf renders a pod's DNS configuration, or returns the host's if the pod has
// none.
func resolvConf(dns *sandbox.DNSConfig) ([]byte, error) {
	if dns == nil {
		return copyOf("/etc/resolv.conf")
	}
	var b strings.Builder
	if s := dns.Searches; len(s) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(s, " "))
	}
	for _, server := range dns.Servers {
		fmt.Fprintf(&b, "nameserver %s\n", server)
	}
	if o := dns.Options; len(o) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(o, " "))
	}
	return []byte(b.String()), nil
}

// selinuxLabel returns the label of the pod's holder on a host with SELinux: the default
// label of containers, with the parts that the pod asks for. A privileged pod has no
// label.
func selinuxLabel(s sandbox.LinuxSandboxSecurityContext) string {
	var st unix.Statfs_t
	const magic = 0xf97cff8c // SELINUX_MAGIC
	if err := unix.Statfs("/sys/fs/selinux", &st); err != nil || uint32(st.Type) != magic || s.Privileged {
		return ""
	}
	return labelOf(s.SelinuxOptions)
}

func labelOf(o *sandbox.SELinuxOption) string {
	if o == nil {
		return ""
	}
	parts := []string{"system_u", "system_r", "container_t", "s0"}
	for i, asked := range []string{o.User, o.Role, o.Type, o.Level} {
		if asked != "" {
			parts[i] = asked
		}
	}
	return strings.Join(parts, ":")
}
