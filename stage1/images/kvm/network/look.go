package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/rtnetlink"
)

const (
	maxSeen    = 1 << 16 // entries of the kernel's lists, whether they are taken over or not
	maxRefused = 32
	maxLooks   = 8 // while the namespace changes
)

// Numbers of the kernel that golang.org/x/sys/unix does not have.
const (
	devconfAcceptRA    = 3  // index in IFLA_INET6_CONF
	devconfDisableIPv6 = 26 // index in IFLA_INET6_CONF
)

// reader reads a namespace. The error of a method is one of the whole Look.
type reader struct {
	conn    *rtnetlink.Conn
	taps    []uint32 // the indexes of the links that are the machine's own
	seen    int
	config  Config
	refused []string
}

// look reads a namespace, again if it changes meanwhile. It returns the part that can be taken over,
// and the rest in words.
func look(namespace *os.File, taps []uint32) (Config, []string, error) {
	for attempt := 1; ; attempt++ {
		c, refused, err := lookOnce(namespace, taps)
		if attempt == maxLooks || !errors.Is(err, rtnetlink.ErrChanged) {
			return c, refused, err
		}
	}
}

func lookOnce(namespace *os.File, taps []uint32) (Config, []string, error) {
	conn, err := rtnetlink.DialIn(namespace)
	if err != nil {
		return Config{}, nil, err
	}
	defer conn.Close()
	r := &reader{conn: conn, taps: taps}
	for _, list := range []struct {
		what   string
		kind   uint16
		header int // size of the header of the request and of each entry
		each   func(header, rest []byte) error
	}{
		{"links", unix.RTM_GETLINK, unix.SizeofIfInfomsg, r.link},
		{"addresses", unix.RTM_GETADDR, unix.SizeofIfAddrmsg, r.address},
		{"rules", unix.RTM_GETRULE, sizeofRule, r.rule},
		{"routes", unix.RTM_GETROUTE, unix.SizeofRtMsg, r.route},
		{"neighbours", unix.RTM_GETNEIGH, unix.SizeofNdMsg, r.neighbour},
	} {
		err := conn.Dump(list.kind, make([]byte, list.header), func(m syscall.NetlinkMessage) error {
			if r.seen++; r.seen > maxSeen {
				return fmt.Errorf("the network namespace has more than %d links, addresses, routes and neighbours", maxSeen)
			}
			if len(m.Data) < list.header {
				return nil
			}
			return list.each(m.Data[:list.header], m.Data[list.header:])
		})
		if err != nil {
			return Config{}, nil, fmt.Errorf("read the %s of the network namespace: %w", list.what, err)
		}
	}
	// The gateway of a route is accepted when the route to the gateway is there.
	slices.SortStableFunc(r.config.Routes, func(a, b Route) int { return gateways(a) - gateways(b) })
	if err := r.config.check(); err != nil {
		return Config{}, nil, fmt.Errorf("the network namespace: %w", err)
	}
	return r.config, r.refused, nil
}

// refuse notes that something is not taken over.
func (r *reader) refuse(format string, args ...any) {
	if len(r.refused) < maxRefused {
		r.refused = append(r.refused, fmt.Sprintf(format, args...))
	}
}

// link reads a link. One that is down is no error: it may be one of those which tunnels make in each
// namespace, or one that is not yet set up.
func (r *reader) link(header, rest []byte) error {
	l := Link{index: number(header[4:8]), NoIPv6: true}
	flags := number(header[8:12])
	if flags&unix.IFF_LOOPBACK != 0 || flags&unix.IFF_UP == 0 || slices.Contains(r.taps, l.index) {
		return nil
	}
	l.NoARP = flags&unix.IFF_NOARP != 0
	var kind string
	var parent, master uint32
	elsewhere := false
	ethernet := binary.NativeEndian.Uint16(header[2:]) == unix.ARPHRD_ETHER
	for attribute, value := range rtnetlink.Attributes(rest) {
		switch attribute {
		case unix.IFLA_IFNAME:
			l.Name = text(value)
		case unix.IFLA_ADDRESS:
			ethernet = ethernet && copy(l.MAC[:], value) == len(value)
		case unix.IFLA_MTU:
			l.MTU = int(number(value))
		case unix.IFLA_LINK:
			parent = number(value)
		case unix.IFLA_LINK_NETNSID:
			elsewhere = true
		case unix.IFLA_MASTER:
			master = number(value)
		case unix.IFLA_LINKINFO:
			kind = text(find(value, unix.IFLA_INFO_KIND))
		case unix.IFLA_AF_SPEC:
			l.ipv6(find(find(value, unix.AF_INET6), unix.IFLA_INET6_CONF))
		}
	}
	fault := l.check()
	switch {
	case !ethernet:
		r.refuse("the link %+q is not Ethernet", l.Name)
	case kind == "tun":
		r.refuse("the link %+q is a tap of another process", l.Name)
	case master != 0:
		r.refuse("the link %+q is a port of another link", l.Name)
	case kind != "veth" && parent != 0 && !elsewhere:
		r.refuse("the link %+q is made on another link of the network namespace", l.Name)
	case fault != nil:
		r.refuse("the link %+q: %v", l.Name, fault)
	case slices.ContainsFunc(r.config.Links, func(o Link) bool { return o.MAC == l.MAC }):
		r.refuse("the link %+q has the hardware address of another link, %s", l.Name, l.MAC)
	default:
		r.config.Links = append(r.config.Links, l)
	}
	return most("links in the network namespace", len(r.config.Links), maxLinks)
}

// ipv6 reads the sysctls of a link, which the kernel lists as numbers.
func (l *Link) ipv6(list []byte) {
	get := func(index int) uint32 {
		if len(list) < 4*index+4 {
			return 0
		}
		return number(list[4*index : 4*index+4])
	}
	l.NoIPv6 = len(list) == 0 || get(devconfDisableIPv6) != 0
	l.AcceptRA = int32(get(devconfAcceptRA))
}

// named returns the link of an index, or nil if it is not taken over.
func (r *reader) named(index uint32) *Link {
	for i := range r.config.Links {
		if r.config.Links[i].index == index {
			return &r.config.Links[i]
		}
	}
	return nil
}

// address reads an address. Those that are not permanent come from a router's advertisements, which
// the machine gets as well.
func (r *reader) address(header, rest []byte) error {
	l := r.named(number(header[4:8]))
	if l == nil {
		return nil
	}
	flags := uint32(header[2])
	var local, other netip.Addr // a link without a peer has the same or only other
	a := Address{Scope: header[3]}
	for attribute, value := range rtnetlink.Attributes(rest) {
		switch attribute {
		case unix.IFA_FLAGS:
			flags = number(value)
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(value)
		case unix.IFA_ADDRESS:
			other, _ = netip.AddrFromSlice(value)
		case unix.IFA_BROADCAST:
			a.Broadcast, _ = netip.AddrFromSlice(value)
		}
	}
	if flags&unix.IFA_F_PERMANENT == 0 {
		return nil
	}
	switch {
	case !local.IsValid():
		local = other
	case other != local:
		a.Peer = other
	}
	a.Prefix = netip.PrefixFrom(local, int(header[1]))
	if err := a.check(); err != nil {
		r.refuse("the address %s of the link %s: %v", a.Prefix, l.Name, err)
		return nil
	}
	l.Addresses = append(l.Addresses, a)
	return most("addresses of the link "+l.Name, len(l.Addresses), maxAddresses)
}

// neighbour reads a neighbour. Only permanent ones cannot be found again.
func (r *reader) neighbour(header, rest []byte) error {
	l := r.named(number(header[4:8]))
	if l == nil || binary.NativeEndian.Uint16(header[8:])&unix.NUD_PERMANENT == 0 {
		return nil
	}
	n := Neighbour{Link: l.Name}
	whole := false
	for attribute, value := range rtnetlink.Attributes(rest) {
		switch attribute {
		case unix.NDA_DST:
			n.Address, _ = netip.AddrFromSlice(value)
		case unix.NDA_LLADDR:
			whole = len(value) == copy(n.MAC[:], value) && len(value) == len(n.MAC)
		}
	}
	if !whole || !n.MAC.unicast() || !plain(n.Address) {
		r.refuse("the neighbour %s of the link %s: its address or hardware address cannot be used", n.Address, l.Name)
		return nil
	}
	r.config.Neighbours = append(r.config.Neighbours, n)
	return most("permanent neighbours in the network namespace", len(r.config.Neighbours), maxNeighbours)
}

// number reads a number of four bytes. Another size is 0.
func number(value []byte) uint32 {
	if len(value) != 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(value)
}

// text reads a string that ends with a zero.
func text(value []byte) string { return unix.ByteSliceToString(value) }

// find returns the value of an attribute, or nil.
func find(attributes []byte, wanted uint16) []byte {
	for kind, value := range rtnetlink.Attributes(attributes) {
		if kind == wanted {
			return value
		}
	}
	return nil
}
