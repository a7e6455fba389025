package early

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// ErrNoServer says that no process listens on a socket.
var ErrNoServer = errors.New("no server listens")

// Owner is the answer of a server that was asked for a container.
type Owner struct {
	Has    bool   // the server has the container
	HasNot bool   // it has said that it does not. After any other failure neither is set
	PID    uint32 // 0 if it has not said that
}

// StartedFor reports whether the server was started by the `start` of the container.
func (o Owner) StartedFor(id string) bool {
	line, err := proc.ReadFile(fmt.Sprintf("/proc/%d/cmdline", o.PID))
	args := strings.Split(string(line), "\x00")
	i := slices.Index(args, "-id") + 1
	return err == nil && i > 0 && i < len(args) && args[i] == id
}

// OwnerAnswerLimit is how long a server may usually take to say whether it has a container.
// The server answers from memory.
const OwnerAnswerLimit = 500 * time.Millisecond

// Streams of the calls of AskOwner.
const (
	stateStream   = 1
	connectStream = 3
)

// AskOwner asks the server at a socket whether it has a container, and for its pid: it makes
// the calls State and Connect, both at once, in ttrpc's frames. The error is ErrNoServer if
// there is no server, and os.ErrDeadlineExceeded if the server does not answer within limit.
func AskOwner(path, id string, limit time.Duration) (Owner, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return Owner{}, err
	}
	// The runtime polls it: a thread that blocked in read(2) would be watched every 20 µs.
	conn := os.NewFile(uintptr(fd), path)
	defer conn.Close()
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
			err = ErrNoServer
		}
		return Owner{}, err
	}
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return Owner{}, err
	}
	calls := appendCall(nil, stateStream, "State", id, limit)
	if _, err := conn.Write(appendCall(calls, connectStream, "Connect", id, limit)); err != nil {
		return Owner{}, err
	}
	return readOwner(bufio.NewReader(conn))
}

// taskService is the service whose calls every release of the shim has.
const taskService = "containerd.task.v2.Task"

// ttrpc's frames.
const (
	headerSize    = 10 // length, stream, type and flags
	frameRequest  = 1
	frameResponse = 2
	maxFrame      = 4 << 20
)

// appendCall appends the frame of a call whose request has only the id of a container.
func appendCall(b []byte, stream uint32, method, id string, limit time.Duration) []byte {
	request := appendBytes(nil, 1, taskService)
	request = appendBytes(request, 2, method)
	request = appendBytes(request, 3, appendBytes(nil, 1, id))
	request = appendVarint(request, 4, uint64(limit))
	b = binary.BigEndian.AppendUint32(b, uint32(len(request)))
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(append(b, frameRequest, 0), request...)
}

// readOwner reads the answers to both calls, which may come in any order. If the server has the
// container, it need not answer the second one.
func readOwner(r io.Reader) (o Owner, err error) {
	const both = 2
	for range both {
		stream, payload, code, err := readResponse(r)
		switch {
		case err != nil:
			return o, err
		case stream == stateStream:
			o.Has, o.HasNot = code == codeOK, code == codeNotFound
		case stream != connectStream:
			return o, fmt.Errorf("answer on stream %d", stream)
		case code == codeOK:
			err = readFields(payload, func(f field) error {
				if f.number == 1 && f.wire == wireVarint {
					o.PID = uint32(f.varint)
				}
				return nil
			})
			if err != nil {
				return o, err
			}
		}
		if o.Has {
			return o, nil
		}
	}
	return o, nil
}

// gRPC's codes.
const (
	codeOK       = 0
	codeNotFound = 5
)

// readResponse reads the frame of a response.
func readResponse(r io.Reader) (stream uint32, payload []byte, code int32, err error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, 0, err
	}
	length := binary.BigEndian.Uint32(header[:])
	stream = binary.BigEndian.Uint32(header[4:])
	if header[8] != frameResponse || length > maxFrame {
		return 0, nil, 0, errors.New("not a response of ttrpc")
	}
	response := make([]byte, length)
	if _, err := io.ReadFull(r, response); err != nil {
		return 0, nil, 0, err
	}
	err = readFields(response, func(f field) error {
		switch {
		case f.wire == wireBytes && f.number == 1:
			return readFields(f.bytes, func(status field) error {
				if status.wire == wireVarint && status.number == 1 {
					code = int32(status.varint)
				}
				return nil
			})
		case f.wire == wireBytes && f.number == 2:
			payload = f.bytes
		}
		return nil
	})
	return stream, payload, code, err
}
