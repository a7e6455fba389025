package proc

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Tail reads a pipe and keeps the end of the output, so that the writer never waits.
type Tail struct {
	pipe *os.File
	most int
	done chan struct{}
	kept []byte // read after done
	stop func() []byte
}

// ReadTail takes over the read end of a pipe, and keeps the end of the text that is written
// to the pipe, at most most bytes. The read end must be in the runtime's poller.
func ReadTail(pipe *os.File, most int) *Tail {
	t := &Tail{pipe: pipe, most: most, done: make(chan struct{})}
	t.stop = sync.OnceValue(t.finish)
	go t.run()
	return t
}

func (t *Tail) run() {
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

func (t *Tail) keep(b []byte) {
	t.kept = append(t.kept, b...)
	if over := len(t.kept) - t.most; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
}

// Stop returns the kept bytes and closes the pipe. It reads the bytes that are in the pipe
// at that moment, and does not wait for processes that still have the other end open. Later
// calls return the same.
func (t *Tail) Stop() []byte { return t.stop() }

func (t *Tail) finish() []byte {
	_ = t.pipe.SetReadDeadline(time.Now())
	<-t.done
	Drain(t.pipe, t.keep)
	_ = t.pipe.Close()
	return t.kept
}

// Drain reads the bytes that are in a pipe, without waiting. It does not use File.Read,
// which returns an error after a read deadline although there are bytes.
func Drain(pipe *os.File, take func([]byte)) {
	_ = Control(pipe, func(fd int) error {
		buf := make([]byte, 4096)
		for total := 0; total < 1<<20; { // limits the work for a writer that never stops
			n, err := unix.Read(fd, buf)
			if err == unix.EINTR {
				continue
			}
			if n <= 0 || err != nil {
				return err
			}
			take(buf[:n])
			total += n
		}
		return nil
	})
}
