package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/rtnetlink"
)

// Guest is the network of a machine, as a process in the machine sets it up. It is for one goroutine
// at a time.
type Guest struct {
	namespace *os.File
	arrivals  *os.File // the namespace in which NICs appear; nil if it is the same
	have      Config   // of the last Apply
}

// NewGuest returns the network of a namespace of the machine. The caller closes the namespace.
func NewGuest(namespace *os.File) *Guest { return &Guest{namespace: namespace} }

// Move moves the network to another namespace of the machine, which the caller closes, and sets it up there as
// Apply has. NICs go on appearing in the first namespace.
func (g *Guest) Move(ctx context.Context, namespace *os.File) error {
	want := g.have
	g.arrivals, g.namespace, g.have = g.namespace, namespace, Config{}
	return g.Apply(ctx, want)
}

// Apply changes the network from the Config of the last call to another one. It first waits until the
// machine has a NIC for each link, and changes nothing if ctx ends before. Otherwise it does as much
// as it can, and its error names all that has failed. It brings lo up, too. When Apply has returned
// without an error, the machine answers for its addresses.
func (g *Guest) Apply(ctx context.Context, want Config) error {
	conn, err := rtnetlink.DialIn(g.namespace)
	if err != nil {
		return err
	}
	defer conn.Close()
	if g.arrivals != nil {
		if err := g.fetch(ctx, conn, want.Links); err != nil {
			return err
		}
	}
	nics, err := await(ctx, g.namespace, conn, want.Links)
	if err != nil {
		return err
	}
	s := &setup{namespace: g.namespace, conn: conn, nics: nics, have: g.have, want: want}
	s.remove()
	s.rename()
	for _, l := range want.Links {
		s.link(l)
	}
	s.try("lo", s.set(unix.RTM_NEWLINK, 0, linkBody(loopback, unix.IFF_UP, unix.IFF_UP)))
	s.add()
	s.try("wait for the addresses", s.settle(ctx))
	s.announce()
	g.have = want
	return errors.Join(s.errs...)
}

const loopback = 1 // the index of lo in each namespace

// nic is a link of the machine.
type nic struct {
	index uint32
	name  string
	mac   MAC
	up    bool
}

// fetch moves the NICs of the wanted links that are not in the namespace yet.
func (g *Guest) fetch(ctx context.Context, conn *rtnetlink.Conn, want []Link) error {
	here, err := links(conn)
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(want), func(l Link) bool {
		return slices.ContainsFunc(here, func(n nic) bool { return n.mac == l.MAC })
	})
	there, err := rtnetlink.DialIn(g.arrivals)
	if err != nil {
		return err
	}
	defer there.Close()
	nics, err := await(ctx, g.arrivals, there, missing)
	if err != nil {
		return err
	}
	for _, n := range nics {
		if !slices.ContainsFunc(missing, func(l Link) bool { return l.MAC == n.mac }) {
			continue
		}
		// A link of the namespace may have the NIC's name.
		body := rtnetlink.AppendAttribute(linkBody(n.index, 0, unix.IFF_UP), unix.IFLA_IFNAME, []byte("nic%d\x00"))
		err := proc.Control(g.namespace, func(fd int) error {
			return there.Request(unix.RTM_NEWLINK, unix.NLM_F_ACK, rtnetlink.AppendNumber(body, unix.IFLA_NET_NS_FD, uint32(fd)), nil)
		})
		if err != nil {
			return fmt.Errorf("move the NIC %s: %w", n.mac, err)
		}
	}
	return nil
}

// await returns the links of a namespace when there is one for each of the wanted. A NIC appears some time
// after it was plugged in.
func await(ctx context.Context, namespace *os.File, conn *rtnetlink.Conn, want []Link) ([]nic, error) {
	var nics []nic
	missing := -1
	err := follow(ctx, namespace, func() (done bool, err error) {
		if nics, err = links(conn); err != nil {
			return false, err
		}
		missing = slices.IndexFunc(want, func(l Link) bool {
			return !slices.ContainsFunc(nics, func(n nic) bool { return n.mac == l.MAC })
		})
		return missing < 0, nil
	})
	if err != nil && missing >= 0 {
		err = fmt.Errorf("the link %s: the machine has no NIC %s: %w", want[missing].Name, want[missing].MAC, err)
	}
	return nics, err
}

// follow calls look, and calls it again whenever a link, address or route of a namespace has changed,
// until look reports that all is done, or ctx ends.
func follow(ctx context.Context, namespace *os.File, look func() (done bool, err error)) error {
	changes, err := proc.NetworkChanges(namespace) // before the first look
	if err != nil {
		return err
	}
	defer changes.Close()
	defer context.AfterFunc(ctx, func() { _ = changes.SetReadDeadline(time.Unix(1, 0)) })()
	for {
		done, err := look()
		if err != nil && !errors.Is(err, rtnetlink.ErrChanged) {
			return err
		}
		if done {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, rtnetlink.ErrChanged) {
			continue
		}
		if _, err := changes.Read(make([]byte, 64<<10)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
	}
}

// links lists the Ethernet links of a namespace.
func links(conn *rtnetlink.Conn) (list []nic, err error) {
	err = conn.Dump(unix.RTM_GETLINK, linkBody(0, 0, 0), func(m syscall.NetlinkMessage) error {
		if len(m.Data) < unix.SizeofIfInfomsg {
			return nil
		}
		n := nic{index: number(m.Data[4:8]), up: number(m.Data[8:12])&unix.IFF_UP != 0}
		for kind, value := range rtnetlink.Attributes(m.Data[unix.SizeofIfInfomsg:]) {
			switch kind {
			case unix.IFLA_IFNAME:
				n.name = text(value)
			case unix.IFLA_ADDRESS:
				copy(n.mac[:], value)
			}
		}
		if n.index != loopback {
			list = append(list, n)
		}
		return nil
	})
	return list, err
}

// setup is one Apply.
type setup struct {
	namespace  *os.File
	conn       *rtnetlink.Conn
	nics       []nic
	have, want Config
	errs       []error
	fresh      []netip.Addr // addresses of IPv6 that were added
}

// try notes an error.
func (s *setup) try(what string, err error) {
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("%s: %w", what, err))
	}
}

func (s *setup) set(kind, flags uint16, body []byte) error {
	return s.conn.Request(kind, flags|unix.NLM_F_ACK, body, nil)
}

// nic returns the NIC of a link, or nil if there is none any more.
func (s *setup) nic(l Link) *nic {
	for i := range s.nics {
		if s.nics[i].mac == l.MAC {
			return &s.nics[i]
		}
	}
	return nil
}

// index returns the index of the NIC of a link's name, which is in c.
func (s *setup) index(c Config) func(name string) uint32 {
	return func(name string) uint32 {
		i := slices.IndexFunc(c.Links, func(l Link) bool { return l.Name == name })
		if i < 0 {
			return 0
		}
		if n := s.nic(c.Links[i]); n != nil {
			return n.index
		}
		return 0
	}
}

// remove removes routes, neighbours, addresses and links that are no longer wanted. Errors are not noted: the kernel removes addresses and
// routes with others, and with their NICs.
func (s *setup) remove() {
	old := s.index(s.have)
	for _, r := range s.have.Routes {
		if !slices.ContainsFunc(s.want.Routes, r.equal) {
			_ = s.set(unix.RTM_DELROUTE, 0, r.request(old))
		}
	}
	for _, n := range s.have.Neighbours {
		if !slices.Contains(s.want.Neighbours, n) {
			_ = s.set(unix.RTM_DELNEIGH, 0, n.request(old))
		}
	}
	for _, l := range s.have.Links {
		n := s.nic(l)
		if n == nil {
			continue
		}
		var stay []Address
		if i := slices.IndexFunc(s.want.Links, func(w Link) bool { return w.MAC == l.MAC }); i >= 0 {
			stay = s.want.Links[i].Addresses
		} else {
			_ = s.set(unix.RTM_NEWLINK, 0, linkBody(n.index, 0, unix.IFF_UP))
		}
		for _, a := range l.Addresses {
			if !slices.Contains(stay, a) {
				_ = s.set(unix.RTM_DELADDR, 0, a.request(n.index))
			}
		}
	}
}

// rename gives the NICs their names. A link must be down for that, and a name may be that of a NIC
// which is to have another one.
func (s *setup) rename() {
	var wrong []Link
	for _, l := range s.want.Links {
		if s.nic(l).name != l.Name {
			wrong = append(wrong, l)
		}
	}
	for i, name := range append(slices.Repeat([]string{"nic%d"}, len(wrong)), names(wrong)...) {
		n := s.nic(wrong[i%len(wrong)])
		body := rtnetlink.AppendAttribute(linkBody(n.index, 0, unix.IFF_UP), unix.IFLA_IFNAME, append([]byte(name), 0))
		if err := s.set(unix.RTM_NEWLINK, 0, body); err != nil {
			s.try(fmt.Sprintf("give the NIC %s the name %s", n.mac, name), err)
			continue
		}
		n.name, n.up = name, false
	}
}

func names(links []Link) (list []string) {
	for _, l := range links {
		list = append(list, l.Name)
	}
	return list
}

// link sets a NIC up and brings it up. Addresses of IPv4 come first, so that the NIC answers the first
// request that it receives.
func (s *setup) link(l Link) {
	n := s.nic(l)
	if n.name != l.Name {
		return // an error is noted
	}
	what := "the link " + l.Name
	s.try(what+": set the MTU", s.set(unix.RTM_NEWLINK, 0, rtnetlink.AppendNumber(linkBody(n.index, 0, 0), unix.IFLA_MTU, uint32(l.MTU))))
	s.try(what+": IPv6", s.ipv6(n.index, l))
	s.addresses(l, n.index, unix.AF_INET)
	flags := uint32(unix.IFF_UP)
	if l.NoARP {
		flags |= unix.IFF_NOARP
	}
	if err := s.set(unix.RTM_NEWLINK, 0, linkBody(n.index, flags, unix.IFF_UP|unix.IFF_NOARP)); err != nil {
		s.try(what+": bring it up", err)
		return
	}
	s.addresses(l, n.index, unix.AF_INET6)
}

// ipv6 sets the sysctls of a link. A kernel without IPv6 has none.
func (s *setup) ipv6(index uint32, l Link) error {
	disable := "0"
	if l.NoIPv6 {
		disable = "1"
	}
	err := Within(s.namespace, func() error {
		dir := filepath.Join("/proc/sys/net/ipv6/conf", l.Name)
		if _, err := os.Stat(dir); l.NoIPv6 && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err := os.WriteFile(filepath.Join(dir, "accept_ra"), []byte(strconv.Itoa(int(l.AcceptRA))), 0); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "disable_ipv6"), []byte(disable), 0)
	})
	if err != nil {
		return err
	}
	return noIPv6Address(s.conn, index)
}

// addresses adds the addresses of a family that the link does not have.
func (s *setup) addresses(l Link, index uint32, family byte) {
	for _, a := range l.Addresses {
		if familyOf(a.Prefix.Addr()) != family {
			continue
		}
		err := s.set(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, a.request(index))
		if !errors.Is(err, unix.EEXIST) {
			s.try(fmt.Sprintf("the link %s: add the address %s", l.Name, a.Prefix), err)
		}
		if err == nil && family == unix.AF_INET6 {
			s.fresh = append(s.fresh, a.Prefix.Addr())
		}
	}
}

// settle waits until the machine takes packets to its new addresses. For IPv6 the kernel makes the
// local route of an address some time after the address.
func (s *setup) settle(ctx context.Context) error {
	if len(s.fresh) == 0 {
		return nil
	}
	return follow(ctx, s.namespace, func() (bool, error) {
		var local []netip.Addr
		body := make([]byte, unix.SizeofRtMsg)
		body[0] = unix.AF_INET6
		err := s.conn.Dump(unix.RTM_GETROUTE, body, func(m syscall.NetlinkMessage) error {
			if len(m.Data) >= unix.SizeofRtMsg && m.Data[7] == unix.RTN_LOCAL {
				a, _ := netip.AddrFromSlice(find(m.Data[unix.SizeofRtMsg:], unix.RTA_DST))
				local = append(local, a)
			}
			return nil
		})
		return !slices.ContainsFunc(s.fresh, func(a netip.Addr) bool { return !slices.Contains(local, a) }), err
	})
}

// add adds the routes and neighbours that are not there.
func (s *setup) add() {
	index := s.index(s.want)
	for _, n := range s.want.Neighbours {
		s.try(fmt.Sprintf("the link %s: add the neighbour %s", n.Link, n.Address), s.set(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, n.request(index)))
	}
	for _, r := range s.want.Routes {
		// Appended, because several routes may have the same destination and metric.
		if err := s.set(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, r.request(index)); !errors.Is(err, unix.EEXIST) {
			s.try(fmt.Sprintf("add the route %s", r.Destination), err)
		}
	}
}

// request returns the body of the request that adds or removes an address. The kernel makes no route
// for the address, and does not look for other owners of it: the namespace has done that.
func (a Address) request(index uint32) []byte {
	local := a.Prefix.Addr()
	b := []byte{familyOf(local), byte(a.Prefix.Bits()), 0, a.Scope}
	b = appendNumber(b, index)
	b = rtnetlink.AppendAttribute(b, unix.IFA_LOCAL, local.AsSlice())
	peer := local
	if a.Peer.IsValid() {
		peer = a.Peer
	}
	b = rtnetlink.AppendAttribute(b, unix.IFA_ADDRESS, peer.AsSlice())
	if a.Broadcast.IsValid() {
		b = rtnetlink.AppendAttribute(b, unix.IFA_BROADCAST, a.Broadcast.AsSlice())
	}
	flags := uint32(unix.IFA_F_NOPREFIXROUTE)
	if local.Is6() {
		flags |= unix.IFA_F_NODAD
	}
	return rtnetlink.AppendNumber(b, unix.IFA_FLAGS, flags)
}

func (n Neighbour) request(index func(link string) uint32) []byte {
	b := appendNumber([]byte{familyOf(n.Address), 0, 0, 0}, index(n.Link))
	b = append(b, unix.NUD_PERMANENT, 0, 0, 0) // state, flags, type
	b = rtnetlink.AppendAttribute(b, unix.NDA_DST, n.Address.AsSlice())
	return rtnetlink.AppendAttribute(b, unix.NDA_LLADDR, n.MAC[:])
}

func (r Route) equal(o Route) bool {
	return r.Destination == o.Destination && r.Type == o.Type && r.Protocol == o.Protocol && r.Scope == o.Scope &&
		r.Source == o.Source && r.Metric == o.Metric && slices.Equal(r.Hops, o.Hops) && slices.Equal(r.Attributes, o.Attributes)
}
