// Package wire is the protocol between an entrypoint of the native stage1 and the supervisor
// of its pod: one packet each way over a unix socket in the pod's directory. The client's
// packet has the call and descriptors. The answer is the exit code, with a text if the call
// did not arrive whole. Both ends are the same binary, so the format has no version.
//
// The package encodes, decodes and serves calls. It knows no app.
package wire

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// Socket is where the supervisor listens, relative to the pod's directory: a socket's path
// has room for 107 bytes only, and the pod's directory may be renamed.
const Socket = "stage1/rootfs/rkt/native.sock"

// MaxPacket and MaxFiles are larger than any packet.
const (
	MaxPacket = 256
	MaxFiles  = 16
)

// Call is one call of an entrypoint.
type Call struct {
	Entrypoint abi.Entrypoint
	Force      bool // stop --force

	// Files are those that the entrypoint was given; nil is absent.
	Request *os.File    // the request document
	Error   *os.File    // for the text of a failure
	Ready   *os.File    // for the ready line
	Stdio   [3]*os.File // the app's
}

// slots pairs each file of a call with the letter that stands for it.
func (c *Call) slots() []slot {
	return []slot{
		{'q', &c.Request}, {'e', &c.Error}, {'r', &c.Ready},
		{'0', &c.Stdio[0]}, {'1', &c.Stdio[1]}, {'2', &c.Stdio[2]},
	}
}

type slot struct {
	letter byte
	file   **os.File
}

// Encode returns the packet and the descriptors to send with it:
// "app/add\x00qer012\x00".
func (c *Call) Encode() (packet []byte, fds []int) {
	packet = append(packet, c.Entrypoint...)
	packet = append(packet, 0)
	for _, s := range c.slots() {
		if *s.file != nil {
			packet = append(packet, s.letter)
			fds = append(fds, int((*s.file).Fd()))
		}
	}
	packet = append(packet, 0)
	if c.Force {
		packet = append(packet, "force"...)
	}
	return packet, fds
}

// ErrPacket says that a packet does not hold a call.
var ErrPacket = errors.New("not a call of an entrypoint")

// Decode is the inverse of Encode. It takes the descriptors over, even if it fails.
func Decode(packet []byte, fds []int) (*Call, error) {
	c := &Call{}
	err := c.decode(packet, fds)
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Call) decode(packet []byte, fds []int) error {
	// Descriptors that are not part of the call are closed.
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	parts := bytes.Split(packet, []byte{0})
	if len(parts) != 3 {
		return fmt.Errorf("%w: %.40q", ErrPacket, packet)
	}
	c.Entrypoint = abi.Entrypoint(parts[0])
	switch string(parts[2]) {
	case "":
	case "force":
		c.Force = true
	default:
		return fmt.Errorf("%w: unknown word %.40q", ErrPacket, parts[2])
	}
	if len(parts[1]) != len(fds) {
		return fmt.Errorf("%w: %d descriptors, announced as %.20q", ErrPacket, len(fds), parts[1])
	}
	for _, letter := range parts[1] {
		file := c.slot(letter)
		if file == nil || *file != nil {
			return fmt.Errorf("%w: descriptors announced as %.20q", ErrPacket, parts[1])
		}
		*file = os.NewFile(uintptr(fds[0]), "descriptor "+string(letter)+" of "+string(c.Entrypoint))
		fds = fds[1:]
	}
	return nil
}

func (c *Call) slot(letter byte) **os.File {
	for _, s := range c.slots() {
		if s.letter == letter {
			return s.file
		}
	}
	return nil
}

// Close closes the files of the call.
func (c *Call) Close() {
	for _, s := range c.slots() {
		if *s.file != nil {
			(*s.file).Close()
		}
	}
}

// EncodeReply returns the packet that answers a call with its exit code. text is the error,
// if the call's own file for errors has not arrived; the packet has the beginning of it.
func EncodeReply(code int, text string) []byte {
	packet := strconv.AppendInt(nil, int64(code), 10)
	if text != "" {
		packet = append(append(packet, ' '), text...)
	}
	return packet[:min(len(packet), MaxPacket)]
}

// DecodeReply is the inverse of EncodeReply.
func DecodeReply(packet []byte) (code int, text string, err error) {
	number, text, more := strings.Cut(string(packet), " ")
	code, err = strconv.Atoi(number)
	if err != nil || code < 0 || code > 255 || number != strconv.Itoa(code) || more != (text != "") {
		return 0, "", fmt.Errorf("not an exit code: %.40q", packet)
	}
	return code, text, nil
}
