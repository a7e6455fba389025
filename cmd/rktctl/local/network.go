package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Networks of a pod. Any other word names a network of CNI.
const (
	NetworkNone = "none" // a namespace with nothing but a loopback device
	NetworkHost = "host" // the host's namespace
)

// Names below a pod's directory, and of the device in its network namespace.
const (
	netnsFile   = "netns" // the network namespace, pinned
	networkFile = "network.conflist"
	cniCacheDir = "cni"
	deviceName  = "eth0"
)

// Defaults of CNI's files.
const (
	DefaultCNIConfig  = "/etc/cni/net.d"
	DefaultCNIPlugins = "/opt/cni/bin"
)

// usesCNI reports whether plugins make the pod's network.
func (p *Pod) usesCNI() bool {
	return p.record.Network != NetworkNone && p.record.Network != NetworkHost
}

// loadNetwork reads a configuration of CNI.
func (s *Store) loadNetwork(name string) (*libcni.NetworkConfigList, error) {
	list, err := libcni.LoadConfList(s.CNIConfig, name)
	if err != nil {
		return nil, fmt.Errorf("network %q: it is %s, %s, or a network that a file in %s configures: %w: %w",
			name, NetworkNone, NetworkHost, s.CNIConfig, err, errdefs.ErrInvalidArgument)
	}
	return list, nil
}

// cni returns the caller of plugins, and the arguments of each call for this pod.
func (p *Pod) cni() (*libcni.CNIConfig, *libcni.RuntimeConf) {
	return libcni.NewCNIConfigWithCacheDir(p.store.CNIPlugins, p.path(cniCacheDir), nil),
		&libcni.RuntimeConf{ContainerID: p.uuid, NetNS: p.path(netnsFile), IfName: deviceName}
}

// connect makes the pod's network namespace, and a device in it by CNI's plugins. It returns the
// namespace's path.
func (p *Pod) connect(ctx context.Context) (netns string, err error) {
	list, err := p.store.loadNetwork(p.record.Network)
	if err != nil {
		return "", err
	}
	netns = p.path(netnsFile)
	if err := pinNamespace(netns); err != nil {
		return "", fmt.Errorf("network namespace of pod %s: %w", p.uuid, err)
	}
	p.store.fault("pin netns")
	if err := p.saveNetwork(list.Bytes); err != nil {
		return "", err
	}
	p.store.fault("write network")
	cni, conf := p.cni()
	if _, err := cni.AddNetworkList(ctx, list, conf); err != nil {
		return "", fmt.Errorf("network %s of pod %s: %w", p.record.Network, p.uuid, err)
	}
	p.store.fault("add network")
	return netns, nil
}

// saveNetwork writes the configuration that the removal needs, whatever the file of the network has then. It is
// on the disk before the first plugin is called, because what plugins record about addresses survives a power loss.
func (p *Pod) saveNetwork(text []byte) error {
	f, err := os.OpenFile(p.path(networkFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	dir, err := os.Open(p.path())
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// disconnect lets the plugins remove what they have made. It can be repeated, and is possible
// after an add that was interrupted.
func (p *Pod) disconnect(ctx context.Context) error {
	text, err := os.ReadFile(p.path(networkFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	list, err := libcni.ConfListFromBytes(text)
	if err != nil {
		return fmt.Errorf("network of pod %s: %s is damaged: %w: release the pod's addresses, and remove the file", p.uuid, p.path(networkFile), err)
	}
	cni, conf := p.cni()
	if !isNamespace(conf.NetNS) {
		conf.NetNS = "" // the machine was booted: the plugins release addresses only
	}
	if err := cni.DelNetworkList(ctx, list, conf); err != nil {
		return fmt.Errorf("network %s of pod %s: %w", p.record.Network, p.uuid, err)
	}
	p.store.fault("del network")
	return nil
}

// pinNamespace makes a network namespace, brings up its loopback device, and mounts it on a new
// file.
func pinNamespace(path string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return proc.OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := loopbackUp(); err != nil {
			return fmt.Errorf("bring up lo: %w", err)
		}
		return unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), path, "", unix.MS_BIND, "")
	})
}

// loopbackUp brings up the loopback device of the thread's network namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// isNamespace reports whether a namespace is mounted on path.
func isNamespace(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.NSFS_MAGIC
}
