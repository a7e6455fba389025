package stage1

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
)

// asked is a call that the stage1 answers on its socket: docs/stage1-abi.md, section 11.
type asked struct {
	conn  *serve.Conn
	ready *line
	words string // why the call has failed; set before Call.Ended is closed
	text  []byte // the answer; set before Call.Ended is closed
	hung  bool   // hangUp was called
}

// ask makes the call on the stage1's socket. If the entrypoint has to be executed instead,
// it returns false and no error; the stage1 has received nothing then.
func (k *Call) ask() (bool, error) {
	socket := k.Stage1.Socket()
	if socket == "" || k.Stage1.Execute || k.Entrypoint == abi.Run || k.Entrypoint == abi.GC || k.Entrypoint == abi.FeaturesProbe {
		return false, nil
	}
	conn, err := k.Stage1.door.connect(filepath.Join(k.Dir, RootfsDir), strings.TrimPrefix(socket, "/"))
	if err != nil {
		if errors.Is(err, serve.ErrUntrusted) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) {
			k.log(err).Warnf("stage1 %s: the socket of a pod is not used, %s is executed", k.Stage1.name, k.Entrypoint)
		}
		return false, nil
	}
	text, err := encodeRequest(k)
	if err != nil {
		return false, errors.Join(err, conn.Close())
	}
	if show := k.Stage1.Show; show != nil {
		show(k.Entrypoint, nil, nil, text)
	}
	rest, err := k.begin(conn, text)
	if err != nil { // the stage1 has ended
		return false, conn.Close()
	}
	k.asked = &asked{conn: conn, ready: &line{done: make(chan struct{})}}
	go k.converse(rest)
	return true, nil
}

// door keeps the pod's socket open between calls. The zero value has none yet.
type door struct {
	mu     sync.Mutex
	root   string
	opened *serve.Door // nil if none is open
}

// connect connects to the socket at a path below root. If no process listens on the socket that
// is open, it opens the one that is there now.
func (d *door) connect(root, path string) (*serve.Conn, error) {
	if kept := d.at(root); kept != nil {
		if conn, err := kept.Connect(); err == nil {
			return conn, nil
		}
	}
	opened, err := serve.Open(root, path)
	if err != nil {
		return nil, err
	}
	conn, err := opened.Connect()
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	d.keep(root, opened)
	return conn, nil
}

// at returns the socket below root, or nil if none is open.
func (d *door) at(root string) *serve.Door {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.root != root {
		return nil
	}
	return d.opened
}

// keep replaces the socket that is open. With nil none is.
func (d *door) keep(root string, opened *serve.Door) {
	d.mu.Lock()
	old := d.opened
	d.root, d.opened = root, opened
	d.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
}

// begin sends the beginning of the request and the app's streams, and returns the rest.
func (k *Call) begin(conn *serve.Conn, text []byte) (rest []byte, err error) {
	var fds []int
	if k.Stage1.Dialect.Descriptors(k).Streams {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		defer null.Close()
		for _, f := range k.Stdio {
			if f == nil {
				f = null
			}
			fds = append(fds, int(f.Fd()))
		}
	}
	rest, err = conn.Begin(serve.Call, text, fds...)
	runtime.KeepAlive(k.Stdio) // keeps the files open: fds has only their numbers
	return rest, err
}

// converse sends the rest of the request and receives the answers.
func (k *Call) converse(rest []byte) {
	a := k.asked
	err := a.conn.Finish(rest)
	if err == nil {
		k.Exit.Code, err = k.answers()
	}
	if err != nil {
		k.Exit.Code = 1
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.EPIPE) {
			err = errors.New("the stage1 has ended over this call")
		}
		a.words = strings.TrimPrefix(a.words+": "+err.Error(), ": ")
	}
	_ = a.conn.Close()
	a.ready.end(nil)
	close(k.Ended)
}

// answers receives the answers and returns the exit code, which is the last answer.
func (k *Call) answers() (code int, err error) {
	for {
		word, body, err := k.asked.conn.Receive(serve.MaxAnswer)
		if err != nil {
			return 0, err
		}
		switch word {
		case serve.Ready:
			k.asked.ready.end(append(body, '\n'))
		case serve.Answer:
			k.asked.text = body
		case serve.Error:
			k.asked.words = clean(body[max(0, len(body)-abi.MaxErrorText):])
		case serve.Exit:
			code, err := strconv.ParseUint(string(body), 10, 8)
			if err != nil {
				return 0, fmt.Errorf("the stage1 has answered %.20q instead of an exit code", body)
			}
			return int(code), nil
		default:
			return 0, fmt.Errorf("the stage1 has answered %.20q, which is not a word of the ABI", word)
		}
	}
}

// end sets the text of the line. Only the first call counts.
func (l *line) end(text []byte) {
	select {
	case <-l.done:
	default:
		l.text = text
		l.cut()
		close(l.done)
	}
}

// hangUp tells the stage1 to undo a call that has not ended, and returns the stage1's error
// text. If the stage1 does not answer in time, hangUp kills the pod's supervisor.
func (k *Call) hangUp() (words string) {
	select {
	case <-k.Ended:
		return k.asked.words
	default:
	}
	if k.asked.hung {
		return ""
	}
	k.asked.hung = true
	k.asked.conn.HangUp()
	go func() {
		limit := time.NewTimer(k.Stage1.undoLimit)
		defer limit.Stop()
		select {
		case <-k.Ended:
		case <-limit.C:
			k.log(nil).Warnf("stage1 %s: %s was given up and is not undone after %s: the pod is ended", k.Stage1.name, k.Entrypoint, k.Stage1.undoLimit)
			k.Stage1.killSupervisor()
			_ = k.asked.conn.Close()
		}
	}()
	return ""
}
