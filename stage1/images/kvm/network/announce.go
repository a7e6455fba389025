package network

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// announce tells the neighbours of each new address where it is. A client that has asked for the
// address before the NIC was up then does not wait until it asks again.
func (s *setup) announce() {
	type frame struct {
		index uint32
		bytes []byte
	}
	var frames []frame
	for _, l := range s.want.Links {
		var old []Address
		if i := slices.IndexFunc(s.have.Links, func(h Link) bool { return h.MAC == l.MAC && h.Name == l.Name }); i >= 0 {
			old = s.have.Links[i].Addresses
		}
		for _, a := range l.Addresses {
			if !l.NoARP && !slices.Contains(old, a) {
				frames = append(frames, frame{s.nic(l).index, announcement(l.MAC, a.Prefix.Addr())})
			}
		}
	}
	if len(frames) == 0 {
		return
	}
	s.try("announce the addresses", Within(s.namespace, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // receives nothing
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, f := range frames {
			if err := unix.Sendto(fd, f.bytes, 0, &unix.SockaddrLinklayer{Ifindex: int(f.index)}); err != nil {
				return fmt.Errorf("send on link %d: %w", f.index, err)
			}
		}
		return nil
	}))
}

// announcement is the Ethernet frame that tells all neighbours the hardware address of an address: a
// gratuitous request of ARP (RFC 5227), or an unsolicited neighbour advertisement (RFC 4861).
func announcement(mac MAC, a netip.Addr) []byte {
	if a.Is4() {
		b := frame(MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac, unix.ETH_P_ARP)
		b = append(b, 0, 1, 8, 0, 6, 4, 0, 1) // Ethernet, IPv4, sizes, request
		b = append(append(b, mac[:]...), a.AsSlice()...)
		return append(append(b, make([]byte, 6)...), a.AsSlice()...)
	}
	all := netip.IPv6LinkLocalAllNodes()
	const size, icmp, hops = 32, 58, 255
	message := []byte{136, 0, 0, 0, 0x20, 0, 0, 0} // advertisement; overrides another address
	message = append(message, a.AsSlice()...)
	message = append(append(message, 2, 1), mac[:]...)
	binary.BigEndian.PutUint16(message[2:], checksum(a.AsSlice(), all.AsSlice(), []byte{0, 0, 0, size, 0, 0, 0, icmp}, message))

	b := frame(MAC{0x33, 0x33, 0, 0, 0, 1}, mac, unix.ETH_P_IPV6)
	b = append(b, 0x60, 0, 0, 0, 0, size, icmp, hops)
	return slices.Concat(b, a.AsSlice(), all.AsSlice(), message)
}

// frame begins an Ethernet frame.
func frame(to, from MAC, protocol uint16) []byte {
	return binary.BigEndian.AppendUint16(slices.Concat(to[:], from[:]), protocol)
}

// checksum is that of the internet protocols, of parts of even sizes.
func checksum(parts ...[]byte) uint16 {
	sum := uint32(0)
	for _, b := range parts {
		for i := 0; i+1 < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
