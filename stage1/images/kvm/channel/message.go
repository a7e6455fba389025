package channel

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Word is the type of a message.
type Word string

// Words of the host, each the first message of a stream.
const (
	Call  Word = "call"  // a Header
	Data  Word = "data"  // without bytes; then the host sends Input, and the agent plain bytes
	Hello Word = "hello" // without bytes
	// Connect has an address and a port of the machine. The agent answers with Ready, without bytes, when a
	// server has accepted the connection, or with Error. After Ready the stream is as one of Data.
	Connect Word = "connect"
)

// Words of the host on a stream of Data. The input's end is a message, because yamux forgets a
// stream some time after its end was closed.
const (
	Input Word = "input" // bytes for a descriptor 0 or a terminal
	End   Word = "end"   // the input has ended
)

// Words of the agent. Those on the stream of a call mean the same as in package serve.
const (
	Version Word = "version" // on the stream of Hello, first: the agent's version
	Notice  Word = "notice"  // on the stream of Hello: one line of abi.Notice
	Ready   Word = "ready"   // the ready line, with a pid of the guest; of Connect, without bytes
	Answer  Word = "answer"  // the document of app/stats
	Error   Word = "error"   // why the call fails
	Exit    Word = "exit"    // the exit code, in decimal; the last message
)

// Limits of messages, in bytes.
const (
	MaxCall   = 65 << 20 // serve.MaxRequest, with a rewritten spec and the rest of a Header
	MaxAnswer = 64 << 10
	MaxNotice = 4096
	MaxInput  = 32 << 10
	maxHead   = 32
)

// ErrMessage says that the peer has sent no message of the channel.
var ErrMessage = errors.New("not a message of the channel")

// Send sends a message in one write.
func Send(w io.Writer, word Word, body []byte) error {
	head := strconv.AppendInt(append([]byte(word), ' '), int64(len(body)), 10)
	_, err := w.Write(append(append(head, '\n'), body...))
	return err
}

// Receive returns the next message, whose body has at most limit bytes. The error is io.EOF
// if the peer has closed the stream between two messages. Memory for a body is taken as the
// body arrives. r has a buffer of at least maxHead bytes.
func Receive(r *bufio.Reader, limit int) (Word, []byte, error) {
	line, err := r.ReadSlice('\n')
	switch {
	case err == io.EOF && len(line) == 0:
		return "", nil, io.EOF
	case err == io.EOF:
		return "", nil, io.ErrUnexpectedEOF
	case err == bufio.ErrBufferFull || err == nil && len(line) > maxHead:
		return "", nil, fmt.Errorf("%w: %.40q", ErrMessage, line)
	case err != nil:
		return "", nil, err
	}
	head, number, _ := bytes.Cut(line[:len(line)-1], []byte(" "))
	word := Word(head)
	length, err := strconv.Atoi(string(number))
	if err != nil || length < 0 || strconv.Itoa(length) != string(number) {
		return "", nil, fmt.Errorf("%w: %.40q", ErrMessage, line)
	}
	if length > limit {
		return "", nil, fmt.Errorf("%w: %.20q has %d bytes, more than %d", ErrMessage, string(word), length, limit)
	}
	var body bytes.Buffer
	if _, err := io.CopyN(&body, r, int64(length)); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return "", nil, err
	}
	return word, body.Bytes(), nil
}
