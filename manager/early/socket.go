package early

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// DefaultSocketDir is the same for every state directory of containerd.
	DefaultSocketDir = "/run/containerd/s"
	// maxSocketDir leaves room for a slash and 64 digits in sun_path.
	maxSocketDir  = 42
	AddressPrefix = "unix://"
)

// SocketPath returns the path on which the server of a group listens. containerd's
// pkg/shim and some clients compute the same name (requirements.md#B31).
func SocketPath(dir, containerdAddress, namespace, group string) (string, error) {
	if dir == "" {
		dir = DefaultSocketDir
	}
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("socket directory %q is not absolute", dir)
	}
	if dir = filepath.Clean(dir); len(dir) > maxSocketDir {
		return "", fmt.Errorf("socket directory %q is longer than %d bytes", dir, maxSocketDir)
	}
	name := sha256.Sum256([]byte(filepath.Join(containerdAddress, namespace, group)))
	return filepath.Join(dir, fmt.Sprintf("%x", name)), nil
}

// Claim is the lock on a group's socket: the process that holds it decides which process
// serves the group.
type Claim struct {
	path string
	lock *GroupLock
	// Listener is a listening socket, or nil if a server has one.
	Listener *os.File
}

// ClaimSocket locks the socket at path. If no server listens there, the claim has a new
// listener. The lock is held until Release, so of two concurrent calls for one group
// the second finds the server of the first.
func ClaimSocket(path string) (_ *Claim, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	lock, err := LockGroup(context.Background(), path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.Release()
		}
	}()
	c := &Claim{path: path, lock: lock}
	switch err := Probe(path); {
	case err == nil:
		return c, nil
	case errors.Is(err, unix.ECONNREFUSED):
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove stale socket: %w", err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	if c.Listener, err = Listen(path); err != nil {
		return nil, err
	}
	return c, nil
}

// Release unlocks the group. A server that has inherited the listener keeps it.
func (c *Claim) Release() {
	if c.Listener != nil {
		c.Listener.Close()
	}
	c.lock.Release()
}

// Undo removes the new socket, because no server was started, and unlocks the group.
func (c *Claim) Undo() {
	if c.Listener != nil {
		os.Remove(c.path)
	}
	c.Release()
}

// Probe connects to the socket at path and closes the connection. It never waits. A
// listener whose queue is full counts as one that accepts.
func Probe(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	return err
}

// Listen makes the socket. The umask gives it mode 0600 from the beginning.
func Listen(path string) (_ *os.File, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	mask := unix.Umask(0o177)
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	unix.Umask(mask)
	if err != nil {
		return nil, fmt.Errorf("bind %s: %w", path, err)
	}
	if err = unix.Listen(fd, unix.SOMAXCONN); err == nil {
		err = os.Chmod(path, ownSocket|0o600)
	}
	if err != nil {
		os.Remove(path)
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

const (
	// ownSocket is a bit in the mode of this program's sockets, which has no meaning for a socket. The
	// names of the sockets are those of every shim.
	ownSocket = os.ModeSticky
	// layersMode is the mode of a socket whose server has said SayLayers. The mode of other sockets is 0600.
	layersMode = 0o700
)

// SayLayers has each `start` that finds the server of a socket leave to it the work of containerd's mount manager with
// roots of layers. The server calls it before it reports.
func SayLayers(socket string) error { return os.Chmod(socket, ownSocket|layersMode) }

func takesLayers(socket string) bool {
	var st unix.Stat_t
	return unix.Lstat(socket, &st) == nil && st.Mode&0o777 == layersMode
}

// RemoveStaleSocket removes the socket at path if no process listens on it.
func RemoveStaleSocket(ctx context.Context, path string) error {
	if !isStale(path) {
		return nil
	}
	lock, err := LockGroup(ctx, path)
	if err != nil {
		return err
	}
	defer lock.Release()
	if !isStale(path) {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// SweepSockets removes the files that killed calls of `start` and killed servers have left in a
// directory: a `.lock` that no process holds, and the socket beside it if no process listens on it, and
// this program's sockets on which no process listens. containerd calls no `delete` for a server
// that it has not connected to. Other sockets without a lock may belong to other shims and stay.
func SweepSockets(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	rand.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	var errs []error
	looks := 0
	for _, e := range entries {
		path, hasLock := strings.CutSuffix(filepath.Join(dir, e.Name()), LockSuffix)
		switch {
		case hasLock:
			errs = append(errs, sweepSocket(path, 0))
		case looks == sweepLooks || !isOwn(path):
		case isStale(path):
			errs = append(errs, sweepSocket(path, os.O_CREATE))
		default:
			looks++
		}
	}
	return errors.Join(errs...)
}

// sweepLooks is how many sockets of living servers a sweep connects to, which it chooses at random: each of
// them wakes its server.
const sweepLooks = 3

// sweepSocket removes the socket at path if it is stale and no process holds its lock. open may have
// O_CREATE, to make the lock.
func sweepSocket(path string, open int) error {
	lock, err := tryLockGroup(path, open)
	if err != nil || lock == nil {
		return err
	}
	defer lock.Release()
	if isStale(path) {
		return os.Remove(path)
	}
	return nil
}

// isOwn reports whether this program has made the socket at path.
func isOwn(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.Mode()&fs.ModeSocket != 0 && st.Mode()&ownSocket != 0
}

// isStale reports whether path is a socket on which no process listens.
func isStale(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.Mode()&fs.ModeSocket != 0 && errors.Is(Probe(path), unix.ECONNREFUSED)
}

// PathOf returns the path in a unix address, or an empty string for any other address.
func PathOf(address string) string {
	path, ok := strings.CutPrefix(strings.TrimSpace(address), AddressPrefix)
	if !ok || !filepath.IsAbs(path) {
		return ""
	}
	return path
}
