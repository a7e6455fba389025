package rktabi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
)

// muxDir is the directory below rkt/ in which rkt's multiplexer has a directory of sockets
// for each app.
const muxDir = "iottymux"

// mux describes the multiplexer of an app's streams.
type mux struct {
	pod     string            // the pod's directory
	dir     string            // of its sockets, below pod
	leader  int               // the pod's first process
	sockets map[string]string // file names by stream
}

// maxEndpoints is the size up to which the file endpoints is read. Programs in the pod can write to it.
const maxEndpoints = 64 << 10

// readMux reads the file endpoints of the multiplexer. The paths in the file are paths
// inside the pod.
func readMux(pod, app string) (*mux, error) {
	m := &mux{pod: pod, dir: filepath.Join(stage1.RktDir, muxDir, app), sockets: map[string]string{}}
	text, _, err := abi.ReadBelow(pod, filepath.Join(m.dir, "endpoints"), maxEndpoints)
	if err != nil {
		return nil, err
	}
	var endpoints struct {
		Targets []struct{ Name, Domain, Address string }
	}
	if err := json.Unmarshal(text, &endpoints); err != nil {
		return nil, fmt.Errorf("endpoints of app %s: %w", app, err)
	}
	for _, t := range endpoints.Targets {
		if t.Domain == "unix" && path.Dir(t.Address) == path.Join("/rkt", muxDir, app) {
			m.sockets[t.Name] = path.Base(t.Address)
		}
	}
	return m, nil
}

// errNoSocket is the error for a stream that a multiplexer does not serve.
var errNoSocket = errors.New("no socket of that stream")

// dial connects to a stream's socket. The path of a socket may be too long for an address,
// so dial uses a descriptor.
func (m *mux) dial(stream string) (*net.UnixConn, error) {
	name := m.sockets[stream]
	if name == "" {
		return nil, errNoSocket
	}
	// A link might lead to a socket of the host.
	socket, err := abi.OpenBelow(m.pod, filepath.Join(m.dir, name), unix.O_PATH)
	if err != nil {
		return nil, fmt.Errorf("open the socket of %s: %w", stream, err)
	}
	defer socket.Close()
	return net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: procFD(socket.Fd())})
}

// connect moves the app's data over the multiplexer's sockets until the streams have ended.
// It returns an error only if it has moved nothing.
func (r *carrier) connect(m *mux, over <-chan struct{}) error {
	names := []string{"stdin", "stdout", "stderr"}
	if r.terminal {
		names = []string{"tty"}
	}
	var conns [3]*net.UnixConn
	var errs []error
	for i := len(names) - 1; i >= 0; i-- { // outputs first, because the multiplexer does not buffer them
		if r.files[i] == nil {
			continue
		}
		conn, err := m.dial(names[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("socket of %s: %w", names[i], err))
			continue
		}
		defer conn.Close()
		conns[i] = conn
	}
	// One connection is enough: if the multiplexer of a short app has ended meanwhile, it
	// has sent all output to the connections that it had accepted.
	if conns == [3]*net.UnixConn{} {
		return errors.Join(errs...)
	}
	for i, f := range r.files {
		if f == nil || r.terminal && i > 0 {
			continue
		}
		own, err := polled(f)
		if err != nil {
			return err
		}
		r.files[i] = own
		if r.terminal {
			r.files[1], r.files[2] = own, own
		}
		defer own.Close()
	}
	if r.terminal {
		r.keepTerminal(m.pty())
		defer r.closeTerminals()
	}
	r.pump(conns, over)
	return nil
}

// pty opens the app's terminal where the multiplexer may have bound it in the pod's mount namespace: below the pod's
// root, or below the host's. It returns nil if it is at neither place.
func (m *mux) pty() *os.File {
	root, name := filepath.Join("/proc", strconv.Itoa(m.leader), "root"), "stage2-pts"
	for _, at := range []struct{ dir, path string }{
		{root, filepath.Join(stage1.RktInTree, muxDir, filepath.Base(m.dir), name)}, {filepath.Join(root, m.pod), filepath.Join(m.dir, name)},
	} {
		if f, err := openPTY(at.dir, at.path); err == nil {
			return f
		}
	}
	return nil
}

// errNoPTY is the error for a file that is no terminal of a devpts.
var errNoPTY = errors.New("not a pseudo terminal")

// openPTY opens a terminal below a directory of a pod. It opens nothing else: to open another device may have an effect.
func openPTY(dir, path string) (*os.File, error) {
	f, err := abi.OpenBelow(dir, path, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	const first, last = 136, 143 // the majors of the other ends of pseudo terminals
	if major := unix.Major(st.Rdev); st.Mode&unix.S_IFMT != unix.S_IFCHR || major < first || major > last {
		return nil, errNoPTY
	}
	fd, err := unix.Open(procFD(f.Fd()), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// polled replaces a file by a duplicate. Closing the duplicate ends its reads and writes.
func polled(f *os.File) (*os.File, error) {
	defer f.Close()
	return duplicate(f, true)
}

// pump moves data until all outputs have ended.
func (r *carrier) pump(conns [3]*net.UnixConn, over <-chan struct{}) {
	outputs := conns[1:]
	if r.terminal {
		outputs = conns[:1]
	}
	var input, carried sync.WaitGroup
	if conns[0] != nil {
		input.Go(func() {
			_, _ = io.Copy(conns[0], r.files[0])
			_ = conns[0].CloseWrite() // passes on the end of the input
		})
	}
	stop := when(over, func() { // the app reads no more input, but its output may still arrive
		r.closeTerminals()
		if r.files[0] != nil && !r.terminal {
			_ = r.files[0].Close()
		}
		for _, c := range outputs {
			if c != nil {
				_ = c.SetReadDeadline(time.Now().Add(outputGrace))
			}
		}
	})
	for i, c := range outputs {
		to := r.files[i+1] // with a terminal all files are the same
		carried.Go(func() {
			if c != nil {
				carryOutput(to, c, over)
			}
			if to != nil && !r.terminal {
				_ = to.Close()
			}
		})
	}
	carried.Wait()
	if conns[1] == nil && conns[2] == nil && !r.terminal { // only the input is connected
		<-over
	}
	stop()
	if r.files[0] != nil {
		_ = r.files[0].Close()
	}
	input.Wait()
}

// output is the source of an app's output: a socket or a fifo.
type output interface {
	io.ReadCloser
	SetReadDeadline(time.Time) error
}

// carryOutput moves an app's output until it ends, or until it is silent after the end of
// the app.
func carryOutput(to *os.File, from output, over <-chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil { // the client reads no more
				_ = from.Close()
				return
			}
		}
		if err != nil {
			return
		}
		select {
		case <-over:
			_ = from.SetReadDeadline(time.Now().Add(outputGrace))
		default:
		}
	}
}
