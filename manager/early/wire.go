package early

import (
	"encoding/binary"
	"errors"
	"math"
	"unicode/utf8"
)

// Protobuf's wire types.
const (
	wireVarint = iota
	wireFixed64
	wireBytes
	wireGroup
	wireGroupEnd
	wireFixed32
)

// maxNumber is the largest number of a field. In a group, of which nothing is read, protobuf's library
// accepts larger ones.
const maxNumber = 1<<29 - 1

var errWire = errors.New("not protobuf")

// field is one field of a message on the wire.
type field struct {
	number uint64
	wire   uint64
	varint uint64 // of wireVarint
	bytes  []byte // of wireBytes; refers to the message
}

// text returns a value of type string. Protobuf's strings are UTF-8.
func (f field) text() (string, error) {
	if !utf8.Valid(f.bytes) {
		return "", errWire
	}
	return string(f.bytes), nil
}

// readFields calls f with every field of a message, in order. It fails for exactly the texts
// that proto.Unmarshal does not accept as a message without fields.
func readFields(b []byte, f func(field) error) error {
	for len(b) > 0 {
		next, rest, err := cutField(b, 0)
		if err != nil || next.wire == wireGroupEnd || next.number > maxNumber {
			return errWire
		}
		if err := f(next); err != nil {
			return err
		}
		b = rest
	}
	return nil
}

// cutField cuts the first field off a message. A group counts as one field without a value.
func cutField(b []byte, depth int) (f field, rest []byte, err error) {
	tag, b, err := cutVarint(b)
	if err != nil {
		return f, nil, err
	}
	f.number, f.wire = tag>>3, tag&7
	if f.number == 0 || f.number > math.MaxInt32 {
		return f, nil, errWire
	}
	length := uint64(0)
	switch f.wire {
	case wireVarint:
		f.varint, b, err = cutVarint(b)
	case wireFixed64:
		length = 8
	case wireFixed32:
		length = 4
	case wireBytes:
		length, b, err = cutVarint(b)
	case wireGroup:
		b, err = cutGroup(b, f.number, depth)
	case wireGroupEnd:
	default:
		err = errWire
	}
	if err != nil || length > uint64(len(b)) {
		return f, nil, errWire
	}
	f.bytes = b[:length]
	return f, b[length:], nil
}

// maxDepth is the number of groups that may be around a group. It is protobuf's.
const maxDepth = 10000

// cutGroup cuts off the fields of a group and its end.
func cutGroup(b []byte, number uint64, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, errWire
	}
	for {
		inner, rest, err := cutField(b, depth+1)
		if err != nil {
			return nil, err
		}
		if b = rest; inner.wire == wireGroupEnd {
			if inner.number != number {
				return nil, errWire
			}
			return b, nil
		}
	}
}

func cutVarint(b []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, errWire
	}
	return v, b[n:], nil
}

// appendBytes appends a field of type string or bytes, or a message.
func appendBytes[T string | []byte](b []byte, number uint64, v T) []byte {
	b = binary.AppendUvarint(b, number<<3|wireBytes)
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

// appendVarint appends a field of a type of whole numbers. As in every message of version 3, a
// field without a value is left out.
func appendVarint(b []byte, number, v uint64) []byte {
	if v == 0 {
		return b
	}
	b = binary.AppendUvarint(b, number<<3|wireVarint)
	return binary.AppendUvarint(b, v)
}
