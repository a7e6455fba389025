package stage1

import (
	"io"
	"os"
	"strings"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// tail reads a pipe to its end and keeps the last of it.
type tail struct {
	pipe *os.File
	done chan struct{}
	kept []byte // read after done
}

// readTail takes over the read end of a pipe.
func readTail(pipe *os.File) *tail {
	t := &tail{pipe: pipe, done: make(chan struct{})}
	go t.run()
	return t
}

func (t *tail) run() {
	defer close(t.done)
	buf := make([]byte, 1024)
	for {
		n, err := t.pipe.Read(buf)
		t.kept = append(t.kept, buf[:n]...)
		if over := len(t.kept) - abi.MaxErrorText; over > 0 {
			t.kept = append(t.kept[:0], t.kept[over:]...)
		}
		if err != nil {
			return
		}
	}
}

// text returns what was kept, once the pipe has ended or the limit has passed.
func (t *tail) text(limit time.Duration) string {
	_ = t.pipe.SetReadDeadline(time.Now().Add(limit))
	<-t.done
	return clean(t.kept)
}

func (t *tail) close() {
	_ = t.pipe.SetReadDeadline(time.Now())
	<-t.done
	_ = t.pipe.Close()
}

// clean makes text that a program wrote fit into an error.
func clean(b []byte) string {
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "\uFFFD"))
}

// lastBytes returns the end of a file, or nothing.
func lastBytes(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > abi.MaxErrorText {
		_, _ = f.Seek(-abi.MaxErrorText, io.SeekEnd)
	}
	b, _ := io.ReadAll(io.LimitReader(f, abi.MaxErrorText))
	return clean(b)
}
