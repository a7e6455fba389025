package rktabi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
)

// unitStreams are the streams that systemd opens by name for an app, in the directory in
// which rkt's multiplexer would have its sockets. The multiplexer is not used, because it
// loses the output of a short app, passes on no end of input, and mixes both outputs.
type unitStreams struct {
	fifos  [3]*os.File // open for reading and writing until the app has opened its ends
	inputs *watch      // watches the directory, if the app has an input
}

// sinceByName is the first version of systemd that can open streams by name.
const sinceByName = 236

// opensByName reports whether the pod's systemd is new enough. This is the machine's
// systemd, unless the image has a file with the version of its own.
func (s *adapter) opensByName() bool {
	if !s.hasSystemd() {
		return false
	}
	text, err := os.ReadFile(filepath.Join(s.Rootfs(), "systemd-version"))
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	return err == nil && knowsNames(string(text))
}

// knowsNames reports whether a version, as such an image writes it, is a release of systemd
// that can open streams by name.
func knowsNames(version string) bool {
	number, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(version), "v"))
	return err == nil && number >= sinceByName
}

// open makes the files that systemd opens for an app, and returns the lines for the app's
// unit that name them. It returns no lines if the multiplexer is used.
func (r *carrier) open(s *adapter, k *immutable.Composition) ([]string, error) {
	if !r.byName {
		return nil, nil
	}
	name := path.Join(stage1.RktInTree, muxDir, string(k.Name))
	inside := "/" + name
	o := &unitStreams{}
	r.opened = o
	dir, err := openMuxDir(k.Dir, name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if r.terminal {
		if err := s.bindTerminal(r.files[0], k.Dir, path.Join(name, "tty")); err != nil {
			return nil, fmt.Errorf("show the terminal to the pod: %w", err)
		}
		return []string{"StandardInput=tty-force", "StandardOutput=tty", "StandardError=tty", "TTYPath=" + inside + "/tty"}, nil
	}
	var lines []string
	for i, stream := range [3]struct{ name, option string }{{stdinFIFO, "StandardInput"}, {"stdout", "StandardOutput"}, {"stderr", "StandardError"}} {
		if r.files[i] == nil {
			continue
		}
		if err := o.make(dir, i, stream.name, k.Spec.Process.User); err != nil {
			return nil, err
		}
		lines = append(lines, stream.option+"=file:"+inside+"/"+stream.name)
	}
	if r.files[0] != nil {
		o.inputs, err = watchFor(unix.IN_OPEN, procFD(dir.Fd()))
	}
	return lines, err
}

// openMuxDir makes the directory of an app's streams in a pod's tree, and opens it.
func openMuxDir(podDir, name string) (dir *os.File, err error) {
	err = stage1.InTree(podDir, func(tree *os.Root) error {
		if err := tree.MkdirAll(name, 0o755); err != nil {
			return err
		}
		dir, err = tree.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0) // a fifo is refused, and does not block
		return err
	})
	return dir, err
}

// stdinFIFO is the name of the fifo that an app reads.
const stdinFIFO = "stdin"

// make makes a fifo, and opens it without waiting for the other end. The fifo belongs to
// the app's user, because the app may open it again as /dev/stdout. The owner is changed by
// descriptor, because programs in the pod may replace the fifo by a link.
func (o *unitStreams) make(dir *os.File, i int, name string, user specs.User) error {
	file := filepath.Join(dir.Name(), name)
	if err := unix.Mknodat(int(dir.Fd()), name, unix.S_IFIFO|0o600, 0); err != nil {
		return fmt.Errorf("make the fifo %s: %w", file, err)
	}
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the fifo %s: %w", file, err)
	}
	o.fifos[i] = os.NewFile(uintptr(fd), file)
	if st, err := o.fifos[i].Stat(); err != nil || st.Mode().Type() != fs.ModeNamedPipe {
		return errors.Join(fmt.Errorf("%s is not the fifo that was made there", file), err)
	}
	return o.fifos[i].Chown(int(user.UID), int(user.GID))
}

// again opens a fifo a second time, in one direction.
func (o *unitStreams) again(i, direction int) (f *os.File, err error) {
	conn, err := o.fifos[i].SyscallConn()
	if err != nil {
		return nil, err
	}
	closed := conn.Control(func(fd uintptr) { f, err = os.OpenFile(procFD(fd), direction|unix.O_NONBLOCK, 0) })
	return f, errors.Join(closed, err)
}

// procFD returns a path that leads to an open file, even if that was renamed or removed.
func procFD(fd uintptr) string { return "/proc/self/fd/" + strconv.Itoa(int(fd)) }

// close closes stage 0's ends. It is idempotent.
func (o *unitStreams) close() {
	if o == nil {
		return
	}
	proc.CloseFiles(o.fifos[:]...)
	if o.inputs != nil {
		o.inputs.close()
	}
}

// bindTerminal mounts a terminal of the machine's on a file of the pod's tree.
func (s *adapter) bindTerminal(slave *os.File, dir, file string) error {
	device, err := os.Readlink(procFD(slave.Fd()))
	if err != nil {
		return err
	}
	return s.Within(func() error {
		fd, err := unix.OpenTree(unix.AT_FDCWD, device, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return fmt.Errorf("open %s to mount it: %w", device, err)
		}
		defer unix.Close(fd)
		return stage1.InTree(dir, func(tree *os.Root) error {
			if err := stage1.WriteInTree(tree, file, nil, 0o600); err != nil {
				return err
			}
			return immutable.MountIn(tree, fd, file)
		})
	})
}

// carryOpened moves an app's data through the fifos until the streams have ended. With a
// terminal it only waits for the end of the app.
func (r *carrier) carryOpened(over <-chan struct{}) {
	o := r.opened
	var outputs, input sync.WaitGroup
	for i, fifo := range o.fifos {
		if fifo == nil {
			continue
		}
		if i == 0 {
			input.Go(func() { r.feed(over) })
			continue
		}
		if from, err := o.again(i, os.O_RDONLY); err == nil {
			outputs.Go(func() { drainInto(r.files[i], from, over) })
		}
	}
	<-over
	o.close() // only the app has the ends now
	outputs.Wait()
	r.close()
	input.Wait()
}

// feed moves the client's input once the app has opened the fifo, and then closes the fifo.
// It waits because a fifo without a reader keeps neither data nor an end of file.
func (r *carrier) feed(over <-chan struct{}) {
	o := r.opened
	err := o.inputs.until(context.Background(), over, func() (bool, error) { return o.inputs.saw(stdinFIFO), nil })
	if err != nil {
		return
	}
	to, err := o.again(0, os.O_WRONLY)
	if err != nil {
		return // the app has closed its input
	}
	defer to.Close()
	_ = o.fifos[0].Close()
	from, err := polled(r.files[0])
	if err != nil {
		return
	}
	defer from.Close()
	defer when(over, func() { _ = from.SetReadDeadline(time.Now()) })()
	_, _ = io.Copy(to, from)
}

// drainInto moves an output until its end. If a process keeps the output open after the end
// of the app, the output counts as ended outputGrace later.
func drainInto(to, from *os.File, over <-chan struct{}) {
	defer to.Close()
	defer from.Close()
	defer when(over, func() { _ = from.SetReadDeadline(time.Now().Add(outputGrace)) })()
	carryOutput(to, from, over)
}
