package machine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// A saved machine is a directory with two files. The machine has booted, and has seen nothing of a pod.
const (
	savedMemory = "memory" // of the guest
	savedState  = "state"  // everything else, as QEMU writes it
	savedLock   = "lock"   // beside the directories: who has it saves a machine
	savedNew    = "new"    // in place of the name of the machine that is being saved
)

// mostSaved is how many machines a directory has at the most. There is one for each kernel, agent and size.
const mostSaved = 4

// saved is a machine that was saved.
type saved struct{ memory, state *os.File }

func (s *saved) close() {
	if s != nil {
		proc.CloseFiles(s.memory, s.state)
	}
}

// findSaved returns the name of a machine with some arguments of QEMU, and opens the saved one that has it, if there is one.
//
// The name stands for everything that decides on the state: the files that are booted, QEMU and its arguments, and the
// boot of the host, whose counter the emulated processor has.
func (m *machine) findSaved(arguments []string) (name string, from *saved, err error) {
	if err := trusted(m.config.Saved); err != nil {
		return "", nil, err
	}
	boot, err := proc.BootID()
	if err != nil {
		return "", nil, err
	}
	hash := sha256.New()
	for _, path := range []string{qemu, m.config.Kernel, m.config.Modules, m.config.Init} {
		is, err := identity(path)
		if err != nil {
			return "", nil, err
		}
		fmt.Fprintln(hash, strings.TrimPrefix(is, path)) // each pod has the agent at a path of its own
	}
	fmt.Fprintf(hash, "%q", arguments)
	name = fmt.Sprintf("%.8s-%.16x", boot, hash.Sum(nil)) // isSaved knows such names
	from, err = openSaved(filepath.Join(m.config.Saved, name))
	if errors.Is(err, fs.ErrNotExist) {
		return name, nil, nil
	}
	return name, from, err
}

// openSaved opens the files of one saved machine: another one may replace it at any time.
func openSaved(dir string) (*saved, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	s := &saved{}
	if s.memory, err = root.Open(savedMemory); err != nil {
		return nil, err
	}
	if s.state, err = root.Open(savedState); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// isSaved reports whether a name is that of a saved machine.
func isSaved(name string) bool {
	return len(name) == 8+1+32 && name[8] == '-' && strings.Trim(name, "0123456789abcdef") == "-"
}

// trusted makes a directory, or returns an error for one in which others than root may write.
func trusted(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if st.Uid != 0 || st.Mode&0o022 != 0 {
		return fmt.Errorf("user %d owns %s, whose mode is %#o: only root may write there", st.Uid, dir, st.Mode&0o7777)
	}
	return nil
}

// restoreError is an error for a saved machine from which none could be restored. It is forgotten, and none of the pod's shares
// was used.
type restoreError struct{ error }

// restore gives QEMU the state of a saved machine, when it has the memory.
func (m *machine) restore(ctx context.Context, from *saved) error {
	if m.copier.end(); m.copier.Wait().Code != 0 {
		return fmt.Errorf("copy the memory of a saved machine: %w", m.copier.failure())
	}
	if err := m.qmp.migrate(ctx, "migrate-incoming", from.state); err != nil {
		return fmt.Errorf("restore a saved machine: %w", err)
	}
	return nil
}

func (m *machine) Forget() error {
	if m.origin == "" || m.wasKilled() {
		return nil
	}
	return os.RemoveAll(m.origin)
}

// save saves the machine, and logs an error, because the pod does not need that. The guest may be stopped afterwards.
func (m *machine) save(ctx context.Context, name string) {
	if err := m.saveAs(ctx, name); err != nil {
		fmt.Fprintf(m.config.Log, "the machine is not saved: %v\n", err)
	}
}

// saveAs saves the machine, unless another one is being saved, or was since this one has looked.
func (m *machine) saveAs(ctx context.Context, name string) error {
	dir := m.config.Saved
	lock, err := proc.Lock(filepath.Join(dir, savedLock), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, unix.LOCK_EX|unix.LOCK_NB)
	if lock == nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil
		}
		return err
	}
	defer lock.Close()
	if s, err := openSaved(filepath.Join(dir, name)); err == nil {
		s.close()
		return nil
	}
	begun := filepath.Join(dir, savedNew)
	defer os.RemoveAll(begun)
	// What a process has left that was killed.
	if err := errors.Join(os.RemoveAll(begun), os.RemoveAll(filepath.Join(dir, name))); err != nil {
		return err
	}
	if err := os.Mkdir(begun, 0o700); err != nil {
		return err
	}
	if err := m.write(ctx, begun); err != nil {
		return err
	}
	if err := collect(dir, name); err != nil {
		return err
	}
	return os.Rename(begun, filepath.Join(dir, name))
}

// write writes the files of a saved machine.
func (m *machine) write(ctx context.Context, dir string) error {
	if err := m.qmp.pause(ctx); err != nil {
		return err
	}
	if err := m.writeState(ctx, filepath.Join(dir, savedState)); err != nil {
		return err
	}
	content, err := create(filepath.Join(dir, savedMemory))
	if err != nil {
		return err
	}
	return errors.Join(copyMemory(content, m.memory.file), content.Close())
}

// maxState is more than QEMU writes: half a MiB.
const maxState = 64 * mebibyte

// writeState writes what QEMU writes. QEMU gets a pipe: a guest that takes it over later must not have the file.
func (m *machine) writeState(ctx context.Context, path string) error {
	file, err := create(path)
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	copied := make(chan error, 1)
	go func() {
		n, err := io.Copy(file, io.LimitReader(r, maxState))
		if err == nil && n == maxState {
			err = fmt.Errorf("QEMU's state has more than %d MiB", maxState/mebibyte)
		}
		copied <- errors.Join(err, r.Close(), file.Close())
	}()
	err = errors.Join(m.qmp.migrate(ctx, "migrate", w), w.Close())
	if err != nil {
		r.Close() // QEMU may still have the other end
	}
	stop := context.AfterFunc(ctx, func() { r.Close() })
	defer stop()
	return errors.Join(err, <-copied)
}

func create(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// collect removes saved machines of earlier boots of the host, and the oldest until there is room for one with a name.
func collect(dir, name string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	boot, _, _ := strings.Cut(name, "-")
	var kept []fs.FileInfo
	var all error
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil || !isSaved(e.Name()) || e.Name() == name:
		case strings.HasPrefix(e.Name(), boot+"-"):
			kept = append(kept, info)
		default:
			all = errors.Join(all, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	slices.SortFunc(kept, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, old := range kept[min(len(kept), mostSaved-1):] {
		all = errors.Join(all, os.RemoveAll(filepath.Join(dir, old.Name())))
	}
	return all
}

// Copier is the name, argv[0], of a program that calls Copy. A machine that is restored executes its own program with it, in
// the machine's cgroup, because the kernel charges memory to the process that writes it.
const Copier = "kvm-memory"

// Descriptors of a copier.
const (
	copierFrom = 3 + iota
	copierTo
	copierGo // has its end when the process is in its cgroup
)

// Copy copies the memory of a saved machine, and returns the exit code.
func Copy() int {
	from, to, begin := os.NewFile(copierFrom, savedMemory), os.NewFile(copierTo, "the guest's memory"), os.NewFile(copierGo, "begin")
	_, err := io.Copy(io.Discard, begin)
	if err == nil {
		err = copyMemory(to, from)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// copy begins to copy the memory of a saved machine.
func (m *machine) copy(from *saved) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer proc.CloseFiles(r, w)
	m.copier, err = start(&m.config, &program{
		path: "/proc/self/exe", argv: []string{Copier}, files: []*os.File{from.memory, m.memory.file, r},
	})
	return err
}

// copyMemory copies what a file has that is not zero to another one, which has only zeros, and gives that its size.
func copyMemory(to, from *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	const page = 4096
	buf, zeros := make([]byte, 64*page), make([]byte, page)
	for at := int64(0); ; {
		at, err = unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if err == unix.ENXIO {
			return to.Truncate(info.Size())
		}
		if err != nil {
			return fmt.Errorf("look for memory: %w", err)
		}
		n, err := from.ReadAt(buf, at)
		if err != nil && (err != io.EOF || n == 0) {
			return err
		}
		for some := range slices.Chunk(buf[:n], page) {
			if !bytes.Equal(some, zeros[:len(some)]) {
				if _, err := to.WriteAt(some, at); err != nil {
					return err
				}
			}
			at += int64(len(some))
		}
	}
}
