package serve

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Word is the type of a message.
type Word string

// The words. Stage 0 sends one Call. If the call makes a process, the stage1 sends a Ready;
// if the call asks for a document, an Answer; if the call fails, an Error. Exit is the
// stage1's last message.
const (
	Call   Word = "call"   // the request document, with descriptors 0, 1 and 2 of app/add and enter
	Ready  Word = "ready"  // the ready line, without its newline
	Answer Word = "answer" // the document that app/stats asks for
	Error  Word = "error"  // the reason for which the call fails, for people
	Exit   Word = "exit"   // the exit code, in decimal
)

// Limits of received data, in bytes.
const (
	MaxRequest = 64 << 20 // containerd accepts no message of more than 4 MiB
	MaxAnswer  = 64 << 10
	maxHeader  = 32
)

// maxFiles is larger than the number of descriptors of any message.
const maxFiles = 8

// Conn is one end of a connection, which carries one call.
type Conn struct {
	file  *os.File
	input []byte // received, and not yet part of a message
	fds   []int  // received, and not yet taken
}

// NewConn takes ownership of a connected unix stream socket. If the socket is non-blocking,
// its reads and writes wait in the Go runtime's poller.
func NewConn(fd int) *Conn { return &Conn{file: os.NewFile(uintptr(fd), "a call")} }

// message returns the bytes of a message.
func message(word Word, body []byte) []byte {
	head := strconv.AppendInt(append([]byte(word), ' '), int64(len(body)), 10)
	return append(append(head, '\n'), body...)
}

// Send sends a message.
func (c *Conn) Send(word Word, body []byte, fds ...int) error {
	rest, err := c.Begin(word, body, fds...)
	if err == nil {
		err = c.Finish(rest)
	}
	return err
}

// Begin sends the descriptors and as much of a message as a new connection has room for,
// and returns the rest. It does not wait for room. After an error the peer has received
// nothing.
func (c *Conn) Begin(word Word, body []byte, fds ...int) (rest []byte, err error) {
	text := message(word, body)
	n := 0
	err = proc.Control(c.file, func(fd int) (err error) {
		n, err = proc.SendSome(fd, text, fds...)
		return err
	})
	return text[n:], err
}

// Finish sends the rest that Begin has returned.
func (c *Conn) Finish(rest []byte) error {
	if len(rest) == 0 {
		return nil
	}
	_, err := c.file.Write(rest)
	return err
}

// errMessage says that the peer did not send a message.
var errMessage = errors.New("not a message of a call")

// Receive returns the next message, whose body has at most limit bytes. The error is io.EOF
// if the peer has hung up.
func (c *Conn) Receive(limit int) (word Word, body []byte, err error) {
	end := -1
	for end < 0 {
		if end = bytes.IndexByte(c.input, '\n'); end > maxHeader || end < 0 && len(c.input) > maxHeader {
			return "", nil, fmt.Errorf("%w: %.40q", errMessage, c.input)
		}
		if end < 0 {
			if err := c.more(); err != nil {
				return "", nil, err
			}
		}
	}
	head, number, _ := bytes.Cut(c.input[:end], []byte(" "))
	length, err := strconv.Atoi(string(number))
	if err != nil || length < 0 || strconv.Itoa(length) != string(number) {
		return "", nil, fmt.Errorf("%w: %.40q", errMessage, c.input[:end])
	}
	if length > limit {
		return "", nil, fmt.Errorf("%w: %s has %d bytes, more than %d", errMessage, head, length, limit)
	}
	word, body = Word(head), make([]byte, length)
	n := copy(body, c.input[end+1:])
	c.input = c.input[end+1+n:]
	if _, err = io.ReadFull(c.file, body[n:]); err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return word, body, err
}

// more reads the bytes that have arrived.
func (c *Conn) more() error {
	var buf [512]byte
	n, fds, err := proc.ReceiveFrom(c.file, buf[:], maxFiles)
	if err == unix.ECONNRESET || err == io.EOF && len(c.input) > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	c.input, c.fds = append(c.input, buf[:n]...), append(c.fds, fds...)
	return nil
}

// Files returns the descriptors that came with the messages. The caller closes them.
func (c *Conn) Files() []*os.File {
	files := make([]*os.File, len(c.fds))
	for n, fd := range c.fds {
		files[n] = os.NewFile(uintptr(fd), "descriptor "+strconv.Itoa(n)+" of a call")
	}
	c.fds = nil
	return files
}

// HangUp tells the peer that its answer is no longer wanted, and ends a Finish that waits
// for room. Answers of the peer can still be received.
func (c *Conn) HangUp() {
	_ = c.file.SetWriteDeadline(time.Now())
	_ = proc.Control(c.file, func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) })
}

// Close closes the connection, and the descriptors that were not taken.
func (c *Conn) Close() error {
	proc.CloseAll(c.fds)
	c.fds = nil
	return c.file.Close()
}
