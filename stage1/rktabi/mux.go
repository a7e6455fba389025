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
)

// muxDir is where rkt's multiplexer of streams keeps its sockets, below rkt/ and by app.
const muxDir = "iottymux"

// mux is what a multiplexer says of itself: the sockets of an app's streams.
type mux struct {
	dir     string            // on this side
	leader  int               // the pod's first process
	sockets map[string]string // names of files, by stream
}

// readMux reads the multiplexer's file endpoints. What is in it are paths in the pod.
func readMux(dir, app string) (*mux, error) {
	text, err := os.ReadFile(filepath.Join(dir, "endpoints"))
	if err != nil {
		return nil, err
	}
	var says struct {
		Targets []struct{ Name, Domain, Address string }
	}
	if err := json.Unmarshal(text, &says); err != nil {
		return nil, fmt.Errorf("endpoints of app %s: %w", app, err)
	}
	m := &mux{dir: dir, sockets: map[string]string{}}
	for _, t := range says.Targets {
		if t.Domain == "unix" && path.Dir(t.Address) == path.Join("/rkt", muxDir, app) {
			m.sockets[t.Name] = path.Base(t.Address)
		}
	}
	return m, nil
}

// errNoSocket says that a multiplexer does not serve a stream.
var errNoSocket = errors.New("no socket of that stream")

// dial connects to a stream's socket, whose path may be too long for an address.
func (m *mux) dial(stream string) (*net.UnixConn, error) {
	name := m.sockets[stream]
	if name == "" {
		return nil, errNoSocket
	}
	// A link in its place might lead to a socket of the host's.
	fd, err := unix.Open(filepath.Join(m.dir, name), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the socket of %s: %w", stream, err)
	}
	defer unix.Close(fd)
	return net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d", fd)})
}

// connect carries the app's streams by the multiplexer's sockets until they have ended.
// It fails before it has carried anything.
func (r *carrier) connect(m *mux, over <-chan struct{}) error {
	names := []string{"stdin", "stdout", "stderr"}
	if r.terminal {
		names = []string{"tty"}
	}
	var conns [3]*net.UnixConn
	var errs []error
	for i := len(names) - 1; i >= 0; i-- { // outputs first: nothing is kept for who comes late
		if r.files[i] == nil {
			continue
		}
		conn, err := m.dial(names[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("socket of %s: %w", names[i], err))
			continue
		}
		conns[i] = conn
	}
	if conns == [3]*net.UnixConn{} {
		return errors.Join(errs...)
	}
	// A multiplexer that has gone since has taken a short output with it, and left that
	// to the connections that it had accepted.
	defer closeConns(conns[:])
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
		r.behind(m.ptys()...)
		defer r.letGo()
	}
	r.pump(conns, over)
	return nil
}

// ptys returns where the multiplexer binds an app's terminal, which is in the pod's
// mounts: below its root, or that of the host.
func (m *mux) ptys() []string {
	root, name := filepath.Join("/proc", strconv.Itoa(m.leader), "root"), "stage2-pts"
	return []string{filepath.Join(root, "rkt", muxDir, filepath.Base(m.dir), name), filepath.Join(root, m.dir, name)}
}

func closeConns(conns []*net.UnixConn) {
	for _, c := range conns {
		if c != nil {
			_ = c.Close()
		}
	}
}

// polled takes a file over, for this process alone and such that its closing ends a wait
// for it.
func polled(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// pump carries until all outputs have ended.
func (r *carrier) pump(conns [3]*net.UnixConn, over <-chan struct{}) {
	outputs := conns[1:]
	if r.terminal {
		outputs = conns[:1]
	}
	stop := make(chan struct{})
	var inputs, carried sync.WaitGroup
	if conns[0] != nil {
		inputs.Go(func() { carryInput(conns[0], r.files[0]) })
	}
	inputs.Go(func() {
		select {
		case <-over: // nobody reads any input; no output that is on its way is lost
			r.letGo()
			if r.files[0] != nil && !r.terminal {
				_ = r.files[0].Close()
			}
			for _, c := range outputs {
				if c != nil {
					_ = c.SetReadDeadline(time.Now().Add(outputGrace))
				}
			}
		case <-stop:
		}
	})
	for i, c := range outputs {
		to := r.files[i+1] // of a terminal all are one
		if c == nil {
			if to != nil && !r.terminal {
				_ = to.Close()
			}
			continue
		}
		carried.Go(func() {
			carryOutput(to, c, over)
			if !r.terminal {
				_ = to.Close()
			}
		})
	}
	carried.Wait()
	if conns[1] == nil && conns[2] == nil && !r.terminal { // input alone
		<-over
	}
	close(stop)
	if r.files[0] != nil {
		_ = r.files[0].Close()
	}
	inputs.Wait()
}

// carryInput carries a client's input, and its end if the multiplexer cares for that.
func carryInput(to *net.UnixConn, from *os.File) {
	_, _ = io.Copy(to, from)
	_ = to.CloseWrite()
}

// output is where an app's output comes from: a socket, or a fifo.
type output interface {
	io.ReadCloser
	SetReadDeadline(time.Time) error
}

// carryOutput carries an app's output until it ends, or until it is silent after the
// end of the app.
func carryOutput(to *os.File, from output, over <-chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil { // nobody reads it any more
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
