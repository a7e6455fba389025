package network

import (
	"fmt"
	"strconv"
	"strings"
)

// MAC is the hardware address of an Ethernet link.
type MAC [6]byte

func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// MarshalText returns six pairs of hexadecimal digits with colons between.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the text of MarshalText.
func (m *MAC) UnmarshalText(text []byte) error {
	pairs := strings.Split(string(text), ":")
	if len(pairs) != len(m) {
		return fmt.Errorf("%q is no hardware address", text)
	}
	for i, pair := range pairs {
		n, err := strconv.ParseUint(pair, 16, 8)
		if err != nil || len(pair) != 2 {
			return fmt.Errorf("%q is no hardware address", text)
		}
		m[i] = byte(n)
	}
	return nil
}

// unicast reports whether m can be the address of one link.
func (m MAC) unicast() bool { return m != MAC{} && m[0]&1 == 0 }
