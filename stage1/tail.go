package stage1

import (
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"golang.org/x/sys/unix"
)

// tail reads a pipe and keeps the last of it, so that whoever writes never
// waits.
type tail struct {
	pipe *os.File
	done chan struct{}
	kept []byte // read after done
	text func() string
}

// readTail takes over the read end of a pipe.
func readTail(pipe *os.File) *tail {
	t := &tail{pipe: pipe, done: make(chan struct{})}
	t.text = sync.OnceValue(t.finish)
	go t.run()
	return t
}

func (t *tail) run() {
	defer close(t.done)
	buf := make([]byte, 512)
	for {
		n, err := t.pipe.Read(buf)
		t.keep(buf[:n])
		if err != nil {
			return
		}
	}
}

func (t *tail) keep(b []byte) {
	t.kept = append(t.kept, b...)
	if over := len(t.kept) - abi.MaxErrorText; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
}

// Stop returns what was kept and closes the pipe. It takes what is in the pipe
// by now, and does not wait for those who still hold the other end.
func (t *tail) Stop() string { return t.text() }

func (t *tail) finish() string {
	_ = t.pipe.SetReadDeadline(time.Now())
	<-t.done
	drain(t.pipe, t.keep)
	_ = t.pipe.Close()
	return clean(t.kept)
}

// drain takes what is in a pipe without waiting. A read deadline that has passed
// would keep even that from being read.
func drain(pipe *os.File, take func([]byte)) {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		buf := make([]byte, 4096)
		for total := 0; total < 1<<20; { // a writer that never stops is not waited for
			n, err := unix.Read(int(fd), buf)
			if err == unix.EINTR {
				continue
			}
			if n <= 0 || err != nil {
				return
			}
			take(buf[:n])
			total += n
		}
	})
}

// clean makes what a program wrote fit into an error.
func clean(b []byte) string {
	return strings.TrimSpace(abi.Printable(string(b)))
}
