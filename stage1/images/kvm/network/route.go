package network

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/rtnetlink"
)

const (
	sizeofRule    = 12 // struct fib_rule_hdr
	sizeofNexthop = unix.SizeofRtNexthop
)

// rule reads a rule. Only those that each namespace has from the beginning are expected: with others
// there are several tables of routes, and only the main one is taken over.
func (r *reader) rule(header, rest []byte) error {
	if family := header[0]; family != unix.AF_INET && family != unix.AF_INET6 {
		return nil
	}
	table := uint32(header[4])
	var priority uint32
	for attribute, value := range rtnetlink.Attributes(rest) {
		switch attribute {
		case unix.FRA_PRIORITY:
			priority = number(value)
		case unix.FRA_TABLE:
			table = number(value)
		}
	}
	everything := header[1] == 0 && header[2] == 0 && header[3] == 0
	first := priority == 0 && table == unix.RT_TABLE_LOCAL
	last := priority == 32766 && table == unix.RT_TABLE_MAIN || priority == 32767 && table == unix.RT_TABLE_DEFAULT
	if !everything || !first && !last {
		r.refuse("the routing rule %d", priority)
	}
	return nil
}

// route reads a route. Routes that the kernel has made for an address are taken over like others,
// because a program may have removed some. Those that come from a router's advertisement are left
// out, because the machine gets the advertisement as well.
func (r *reader) route(header, rest []byte) error {
	family := header[0]
	if family != unix.AF_INET && family != unix.AF_INET6 {
		return nil
	}
	route := Route{Protocol: header[5], Scope: header[6], Type: header[7]}
	flags := number(header[8:12])
	table := uint32(header[4])
	single := Hop{OnLink: flags&unix.RTNH_F_ONLINK != 0}
	var to netip.Addr
	var out uint32
	var several []byte
	encapsulated := false
	for attribute, value := range rtnetlink.Attributes(rest) {
		switch attribute {
		case unix.RTA_TABLE:
			table = number(value)
		case unix.RTA_DST:
			to, _ = netip.AddrFromSlice(value)
		case unix.RTA_OIF:
			out = number(value)
		case unix.RTA_GATEWAY, unix.RTA_VIA:
			single.Gateway = gateway(attribute, value)
		case unix.RTA_PREFSRC:
			route.Source, _ = netip.AddrFromSlice(value)
		case unix.RTA_PRIORITY:
			route.Metric = number(value)
		case unix.RTA_METRICS:
			route.Attributes = attributesOf(value)
		case unix.RTA_MULTIPATH:
			several = value
		case unix.RTA_ENCAP:
			encapsulated = true
		}
	}
	if table != unix.RT_TABLE_MAIN || flags&unix.RTM_F_CLONED != 0 || route.Protocol == unix.RTPROT_REDIRECT || route.Protocol == unix.RTPROT_RA {
		return nil
	}
	if !to.IsValid() {
		to = netip.IPv4Unspecified()
		if family == unix.AF_INET6 {
			to = netip.IPv6Unspecified()
		}
	}
	route.Destination = netip.PrefixFrom(to, int(header[1]))
	switch route.Type {
	case unix.RTN_UNICAST, unix.RTN_MULTICAST:
		route.Hops = r.hops(single, out, several)
		if len(route.Hops) == 0 {
			return nil // to links that are not taken over
		}
	case unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_THROW:
	default:
		r.refuse("the route %s of the type %d", route.Destination, route.Type)
		return nil
	}
	if header[2] != 0 || header[3] != 0 || encapsulated {
		r.refuse("the route %s, which is for some packets only or encapsulates them", route.Destination)
		return nil
	}
	if err := route.check(r.config.has); err != nil {
		r.refuse("the route %s: %v", route.Destination, err)
		return nil
	}
	r.config.Routes = append(r.config.Routes, route)
	return most("routes in the network namespace", len(r.config.Routes), maxRoutes)
}

// hops returns the ways of a route that lead to links which are taken over.
func (r *reader) hops(single Hop, out uint32, several []byte) (hops []Hop) {
	add := func(h Hop, index uint32) {
		if l := r.named(index); l != nil {
			h.Link = l.Name
			hops = append(hops, h)
		}
	}
	if several == nil {
		add(single, out)
		return hops
	}
	for len(several) >= sizeofNexthop {
		length := int(binary.NativeEndian.Uint16(several))
		if length < sizeofNexthop || length > len(several) {
			break
		}
		h := Hop{OnLink: several[2]&unix.RTNH_F_ONLINK != 0, Weight: several[3]}
		for attribute, value := range rtnetlink.Attributes(several[sizeofNexthop:length]) {
			if attribute == unix.RTA_GATEWAY || attribute == unix.RTA_VIA {
				h.Gateway = gateway(attribute, value)
			}
		}
		add(h, number(several[4:8]))
		several = several[min((length+3)&^3, len(several)):]
	}
	return hops
}

// gateway reads a gateway. One of another family than the route's has its family before it.
func gateway(attribute uint16, value []byte) (a netip.Addr) {
	if attribute == unix.RTA_VIA && len(value) > 2 {
		value = value[2:]
	}
	a, _ = netip.AddrFromSlice(value)
	return a
}

// gateways returns 1 if a route has a gateway, otherwise 0.
func gateways(r Route) int {
	if slices.ContainsFunc(r.Hops, func(h Hop) bool { return h.Gateway.IsValid() }) {
		return 1
	}
	return 0
}

// attributesOf reads the RTAX attributes of a route that are numbers.
func attributesOf(value []byte) (list []Attribute) {
	for kind, v := range rtnetlink.Attributes(value) {
		if len(v) == 4 && kind != unix.RTAX_CC_ALGO {
			list = append(list, Attribute{kind, number(v)})
		}
	}
	return list
}

// request returns the body of the request that adds or removes a route. index returns the index of a
// link in the machine.
func (r Route) request(index func(link string) uint32) []byte {
	family := familyOf(r.Destination.Addr())
	b := []byte{family, byte(r.Destination.Bits()), 0, 0, unix.RT_TABLE_MAIN, r.Protocol, r.Scope, r.Type, 0, 0, 0, 0}
	if r.Destination.Bits() > 0 {
		b = rtnetlink.AppendAttribute(b, unix.RTA_DST, r.Destination.Addr().AsSlice())
	}
	if r.Source.IsValid() {
		b = rtnetlink.AppendAttribute(b, unix.RTA_PREFSRC, r.Source.AsSlice())
	}
	if r.Metric != 0 {
		b = rtnetlink.AppendNumber(b, unix.RTA_PRIORITY, r.Metric)
	}
	if len(r.Attributes) > 0 {
		var list []byte
		for _, a := range r.Attributes {
			list = rtnetlink.AppendNumber(list, a.Kind, a.Value)
		}
		b = rtnetlink.AppendAttribute(b, unix.RTA_METRICS|unix.NLA_F_NESTED, list)
	}
	if len(r.Hops) == 1 {
		h := r.Hops[0]
		binary.NativeEndian.PutUint32(b[8:], uint32(h.flags()))
		b = rtnetlink.AppendNumber(b, unix.RTA_OIF, index(h.Link))
		return h.appendGateway(b, family)
	}
	var list []byte
	for _, h := range r.Hops {
		rest := h.appendGateway(nil, family)
		list = binary.NativeEndian.AppendUint16(list, uint16(sizeofNexthop+len(rest)))
		list = append(list, h.flags(), h.Weight)
		list = binary.NativeEndian.AppendUint32(list, index(h.Link))
		list = append(list, rest...)
	}
	if list != nil {
		b = rtnetlink.AppendAttribute(b, unix.RTA_MULTIPATH, list)
	}
	return b
}

func (h Hop) flags() byte {
	if h.OnLink {
		return unix.RTNH_F_ONLINK
	}
	return 0
}

func (h Hop) appendGateway(b []byte, family byte) []byte {
	switch {
	case !h.Gateway.IsValid():
		return b
	case familyOf(h.Gateway) == family:
		return rtnetlink.AppendAttribute(b, unix.RTA_GATEWAY, h.Gateway.AsSlice())
	}
	via := binary.NativeEndian.AppendUint16(nil, uint16(familyOf(h.Gateway)))
	return rtnetlink.AppendAttribute(b, unix.RTA_VIA, append(via, h.Gateway.AsSlice()...))
}

func familyOf(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
