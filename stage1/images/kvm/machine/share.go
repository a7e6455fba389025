package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/proc/nofile"
)

// virtiofsd is the path of Debian's virtiofsd, as QEMU's package has it.
const virtiofsd = "/usr/lib/qemu/virtiofsd"

// addShares starts the virtiofsd of each share, and plugs the shares in.
func (m *machine) addShares(ctx context.Context) error {
	for n := range m.config.Shares {
		s := &m.config.Shares[n]
		socket, err := m.startShare(n)
		if err != nil {
			return err
		}
		id := "share" + strconv.Itoa(n)
		err = m.qmp.executeWith(ctx, "getfd", map[string]any{"fdname": id}, nil, socket)
		socket.Close()
		if err == nil {
			address := map[string]any{"type": "fd", "data": map[string]any{"str": id}}
			backend := map[string]any{"type": "socket", "data": map[string]any{"addr": address, "server": false}}
			err = m.qmp.execute(ctx, "chardev-add", map[string]any{"id": id, "backend": backend}, nil)
		}
		if err == nil {
			err = m.qmp.execute(ctx, "device_add", map[string]any{
				"driver": "vhost-user-fs-pci", "id": id, "bus": port(ports + n), "chardev": id, "tag": s.Tag,
			}, nil)
		}
		if err != nil {
			return fmt.Errorf("share %s: %w", s.Tag, err)
		}
	}
	return nil
}

// startShare starts the virtiofsd of a share, and returns QEMU's end of the connection to it.
//
// virtiofsd puts itself into mount, pid and network namespaces with the directory as root. Its
// mounts are slaves of those of the thread that starts it. The pid namespace in which it starts is for its end:
// when its first process is killed, so is the second one, which serves the files. It makes the
// second one after QEMU's end is connected, so both are in the machine's cgroup.
func (m *machine) startShare(n int) (*os.File, error) {
	c := &m.config
	s := &c.Shares[n]
	listener, dial, err := listen(filepath.Join(c.Dir, "share"+strconv.Itoa(n)))
	if err != nil {
		return nil, fmt.Errorf("share %s: %w", s.Tag, err)
	}
	defer listener.Close()
	cache := s.Cache
	if cache == "" {
		cache = "auto"
	}
	argv := []string{
		virtiofsd, "-f", "--fd=3", "-o", "source=" + s.Dir, "-o", "cache=" + cache,
		"-o", fmt.Sprintf("timeout=%d", s.Timeout/time.Second), "-o", "sandbox=namespace", "-o", "xattr", "-o", "posix_acl",
		"--rlimit-nofile=" + strconv.FormatUint(maxOpen(), 10),
	}
	own := &ownMounts{share: s}
	defer own.close()
	virtiofsd := &program{
		argv:  argv,
		files: []*os.File{listener},
		sys:   syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET},
	}
	virtiofsd.prepare = keepRights
	if s.Tree != nil {
		virtiofsd.prepare, virtiofsd.started = own.enter, own.leave
	}
	p, err := start(c, virtiofsd)
	conn, dialErr := dial()
	if err == nil && dialErr != nil {
		_ = p.Kill()
		p.end()
	}
	if err = errors.Join(err, dialErr); err != nil {
		proc.CloseFiles(conn)
		return nil, fmt.Errorf("share %s: %w", s.Tag, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shares = append(m.shares, p)
	return conn, nil
}

// keepRights lets virtiofsd keep its capabilities when it makes a file as a user of the machine. As that user it is in none of
// the user's supplementary groups, so that the host would refuse a file in a directory of such a group, which an fsGroup of
// Kubernetes is. The machine's kernel has found that the user may make it.
func keepRights() error {
	const noSetUIDFixup = 1 << 2 // SECBIT_NO_SETUID_FIXUP
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, noSetUIDFixup, 0, 0, 0); err != nil {
		return fmt.Errorf("let virtiofsd keep its capabilities: %w", err)
	}
	return nil
}

// ownMounts is the mount namespace in which virtiofsd starts: a copy of the host's, in which the tree of a
// share is mounted, too. When QEMU is connected, virtiofsd leaves it for one that has nothing else.
type ownMounts struct {
	share *Share
	host  *os.File // the namespace that the thread had before
}

// enter moves this thread into the namespace, with the rights of keepRights.
func (o *ownMounts) enter() (err error) {
	if err := keepRights(); err != nil {
		return err
	}
	if o.host, err = proc.OpenFile("/proc/thread-self/ns/mnt", os.O_RDONLY, 0); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := attach(o.share.Tree, o.share.Dir); err != nil {
		return fmt.Errorf("mount the tree on %s: %w", o.share.Dir, err)
	}
	return nil
}

// attach mounts a detached mount on a directory.
func attach(tree *os.File, dir string) error {
	return proc.Control(tree, func(fd int) error {
		return unix.MoveMount(fd, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH)
	})
}

// leave moves this thread back. It lasts as long as virtiofsd, and would keep in use what the host unmounts.
func (o *ownMounts) leave() error {
	if err := unix.Setns(int(o.host.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("leave the mount namespace: %w", err)
	}
	return nil
}

func (o *ownMounts) close() { proc.CloseFiles(o.host) }

// maxOpen returns how many files virtiofsd may have open: one for each file that the guest knows. The
// soft limit of this process may be small. More than its hard limit, virtiofsd may not be allowed.
func maxOpen() uint64 { return min(nofile.Original[1], 1_000_000) }

// listen returns a listening socket, and a function that must be called: it connects to the socket
// and removes its name. Only root can open the socket before, and no process after.
func listen(path string) (listener *os.File, dial func() (*os.File, error), err error) {
	dir, err := proc.OpenFile(filepath.Dir(path), os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, nil, err
	}
	// The path of a socket has at most 107 bytes.
	address := &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), Net: "unix"}
	l, err := net.ListenUnix("unix", address)
	if err != nil {
		dir.Close()
		return nil, nil, err
	}
	dial = func() (*os.File, error) {
		defer dir.Close()
		defer l.Close() // removes the socket's name
		conn, err := net.DialUnix("unix", nil, address)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		return conn.File()
	}
	if listener, err = l.File(); err != nil {
		conn, _ := dial()
		proc.CloseFiles(conn)
		return nil, nil, err
	}
	return listener, dial, nil
}
