package channel

import (
	"encoding/binary"
	"fmt"
	"io"
)

// yamux's frames: https://github.com/hashicorp/yamux/blob/v0.1.2/spec.md
const (
	frameHeader = 12
	frameData   = 0
	frameWindow = 1
	framePing   = 2
	flagSYN     = 1
	flagACK     = 2
	flagFIN     = 4
	flagRST     = 8
)

// filter reads the frames of an agent. It ends the connection at the first frame that the
// agent of this project does not send: a new stream, a ping of its own, which would cost the
// host a goroutine, a frame of another type or version. yamux checks the rest.
type filter struct {
	io.ReadWriteCloser
	head [frameHeader]byte
	have int    // bytes of head that were read
	left uint32 // bytes of data after it
	err  error
}

// Read implements io.Reader. Bytes are passed on when the header to which they belong is
// complete and allowed.
func (f *filter) Read(p []byte) (n int, err error) {
	if f.err != nil {
		return 0, f.err
	}
	if len(p) < frameHeader {
		return 0, io.ErrShortBuffer // bufio.Reader, which yamux uses, has 4096 bytes
	}
	if f.left > 0 {
		n, err = f.ReadWriteCloser.Read(p[:min(uint32(len(p)), f.left)])
		f.left -= uint32(n)
		return n, err
	}
	for f.have < frameHeader {
		n, err = f.ReadWriteCloser.Read(f.head[f.have:])
		f.have += n
		if err != nil && f.have < frameHeader {
			return 0, err
		}
	}
	f.have = 0
	if f.err = f.check(); f.err != nil {
		return 0, f.err
	}
	return copy(p, f.head[:]), nil
}

func (f *filter) check() error {
	version, kind, flags := f.head[0], f.head[1], binary.BigEndian.Uint16(f.head[2:])
	id, length := binary.BigEndian.Uint32(f.head[4:]), binary.BigEndian.Uint32(f.head[8:])
	ok := version == 0
	switch kind {
	case frameData:
		f.left = length
		fallthrough
	case frameWindow:
		ok = ok && flags&^(flagACK|flagFIN|flagRST) == 0 && id%2 == 1 // the host's streams are odd
	case framePing:
		ok = ok && flags == flagACK && id == 0
	default:
		ok = false
	}
	if !ok {
		return fmt.Errorf("%w: a frame of version %d, type %d, flags %#x, stream %d", ErrMessage, version, kind, flags, id)
	}
	return nil
}
