package rtnetlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Attributes iterates over the attributes of a message. It yields the kind and the value of
// each.
func Attributes(b []byte) func(yield func(kind uint16, value []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			length := int(binary.NativeEndian.Uint16(b))
			if length < unix.SizeofRtAttr || length > len(b) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofRtAttr:length]) {
				return
			}
			b = b[min(aligned(length), len(b)):]
		}
	}
}

// AppendAttribute appends an attribute, aligned. A nested one has attributes as its value, and
// unix.NLA_F_NESTED in its kind.
func AppendAttribute(b []byte, kind uint16, value []byte) []byte {
	length := unix.SizeofRtAttr + len(value)
	b = binary.NativeEndian.AppendUint16(b, uint16(length))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, aligned(length)-length)...)
}

// AppendNumber appends an attribute whose value is a number.
func AppendNumber(b []byte, kind uint16, value uint32) []byte {
	return AppendAttribute(b, kind, binary.NativeEndian.AppendUint32(nil, value))
}

func aligned(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }
