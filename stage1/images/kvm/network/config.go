package network

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// The most that is taken over of a namespace. A namespace that has more is refused.
const (
	maxLinks      = 16
	maxAddresses  = 256
	maxRoutes     = 1024
	maxHops       = 1024 // of all routes
	maxNeighbours = 1024
)

// MaxConfig is the size in bytes that the text of a Config has at most.
const MaxConfig = 1 << 20

// The MTUs that a tap can have.
const (
	minMTU = 68
	maxMTU = 65521
)

// Config is the network of a machine.
type Config struct {
	Links      []Link      `json:"links,omitempty"`
	Routes     []Route     `json:"routes,omitempty"` // in the order in which they can be added
	Neighbours []Neighbour `json:"neighbours,omitempty"`
}

// Link is a link of the namespace, and a NIC of the machine.
type Link struct {
	Name      string    `json:"name"`
	MAC       MAC       `json:"mac"` // no other link has it
	MTU       int       `json:"mtu"`
	NoARP     bool      `json:"noARP,omitempty"`
	NoIPv6    bool      `json:"noIPv6,omitempty"`
	AcceptRA  int32     `json:"acceptRA,omitempty"` // the sysctl accept_ra of IPv6
	Addresses []Address `json:"addresses,omitempty"`

	index uint32 // in the namespace
}

// Address is a permanent address of a link. It never makes a route: the routes are in Config.
type Address struct {
	Prefix    netip.Prefix `json:"prefix"`             // with all bits of the address
	Peer      netip.Addr   `json:"peer,omitzero"`      // of a point-to-point link
	Broadcast netip.Addr   `json:"broadcast,omitzero"` // IPv4
	Scope     uint8        `json:"scope,omitempty"`    // as in rtnetlink(7)
}

// Route is a route of the main table. The numbers are those of rtnetlink(7).
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Type        uint8        `json:"type"`
	Protocol    uint8        `json:"protocol,omitempty"`
	Scope       uint8        `json:"scope,omitempty"`
	Source      netip.Addr   `json:"source,omitzero"`
	Metric      uint32       `json:"metric,omitempty"`
	Hops        []Hop        `json:"hops,omitempty"` // none if the route leads nowhere
	Attributes  []Attribute  `json:"attributes,omitempty"`
}

// Hop is one way of a route.
type Hop struct {
	Link    string     `json:"link"`
	Gateway netip.Addr `json:"gateway,omitzero"` // of either family
	OnLink  bool       `json:"onLink,omitempty"`
	Weight  uint8      `json:"weight,omitempty"` // less one
}

// Attribute is an RTAX attribute of a route, such as its MTU.
type Attribute struct {
	Kind  uint16 `json:"kind"`
	Value uint32 `json:"value"`
}

// Neighbour is a permanent entry for a neighbour of a link.
type Neighbour struct {
	Link    string     `json:"link"`
	Address netip.Addr `json:"address"`
	MAC     MAC        `json:"mac"`
}

// Without returns the part of c that does not need a link.
func (c Config) Without(link string) (rest Config) {
	for _, l := range c.Links {
		if l.Name != link {
			rest.Links = append(rest.Links, l)
		}
	}
	for _, r := range c.Routes {
		had := len(r.Hops)
		r.Hops = slices.DeleteFunc(slices.Clone(r.Hops), func(h Hop) bool { return h.Link == link })
		if had == 0 || len(r.Hops) > 0 {
			rest.Routes = append(rest.Routes, r)
		}
	}
	for _, n := range c.Neighbours {
		if n.Link != link {
			rest.Neighbours = append(rest.Neighbours, n)
		}
	}
	return rest
}

// Link returns the link of a tap, or nil.
func (c Config) Link(t *Tap) *Link {
	if i := slices.IndexFunc(c.Links, t.serves); i >= 0 {
		return &c.Links[i]
	}
	return nil
}

// ParseConfig reads a Config and checks it.
func ParseConfig(text []byte) (c Config, err error) {
	if len(text) > MaxConfig {
		return Config{}, fmt.Errorf("the network's configuration has more than %d bytes", MaxConfig)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err = d.Decode(&c); err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("there is more after it")
		}
	}
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return Config{}, fmt.Errorf("the network's configuration: %w", err)
	}
	return c, nil
}

// check returns an error that names the first part of c that a machine does not accept.
func (c Config) check() error {
	addresses, hops := 0, 0
	for i, l := range c.Links {
		if err := l.check(); err != nil {
			return fmt.Errorf("link %q: %w", l.Name, err)
		}
		if slices.ContainsFunc(c.Links[:i], func(o Link) bool { return o.Name == l.Name || o.MAC == l.MAC }) {
			return fmt.Errorf("link %q: another link has its name or its hardware address", l.Name)
		}
		addresses += len(l.Addresses)
	}
	for _, r := range c.Routes {
		hops += len(r.Hops)
		if err := r.check(c.has); err != nil {
			return fmt.Errorf("route %s: %w", r.Destination, err)
		}
	}
	for _, n := range c.Neighbours {
		if !plain(n.Address) || !n.MAC.unicast() || !c.has(n.Link) {
			return fmt.Errorf("neighbour %s of %q: its address, hardware address or link cannot be used", n.Address, n.Link)
		}
	}
	return errors.Join(most("links", len(c.Links), maxLinks), most("addresses", addresses, maxAddresses),
		most("routes", len(c.Routes), maxRoutes), most("hops", hops, maxHops), most("neighbours", len(c.Neighbours), maxNeighbours))
}

func most(what string, n, limit int) error {
	if n > limit {
		return fmt.Errorf("more than %d %s", limit, what)
	}
	return nil
}

func (c Config) has(link string) bool {
	return slices.ContainsFunc(c.Links, func(l Link) bool { return l.Name == link })
}

func (l Link) check() error {
	switch {
	case !validName(l.Name):
		return errors.New("the name of a link is 1 to 15 visible ASCII characters except / : and %, and not lo")
	case !l.MAC.unicast():
		return fmt.Errorf("the hardware address %s is not that of one link", l.MAC)
	case l.MTU < minMTU || l.MTU > maxMTU:
		return fmt.Errorf("the MTU %d is not within %d to %d", l.MTU, minMTU, maxMTU)
	}
	for _, a := range l.Addresses {
		if err := a.check(); err != nil {
			return fmt.Errorf("address %s: %w", a.Prefix, err)
		}
	}
	return nil
}

// validName reports whether a name means the same to the kernel, in a path and in a log.
func validName(name string) bool {
	if len(name) == 0 || len(name) >= unix.IFNAMSIZ || name == "." || name == ".." || name == "lo" {
		return false
	}
	for _, b := range []byte(name) {
		if b <= ' ' || b > '~' || b == '/' || b == ':' || b == '%' {
			return false
		}
	}
	return true
}

func (a Address) check() error {
	local := a.Prefix.Addr()
	switch {
	case !a.Prefix.IsValid() || !plain(local):
		return errors.New("it is not an address that a link can have")
	case a.Peer.IsValid() && (!plain(a.Peer) || a.Peer.Is4() != local.Is4()):
		return fmt.Errorf("the peer %s is of another family", a.Peer)
	case a.Broadcast.IsValid() && !(a.Broadcast.Is4() && local.Is4()):
		return fmt.Errorf("the broadcast address %s is of another family", a.Broadcast)
	}
	return nil
}

func (r Route) check(has func(link string) bool) error {
	to := r.Destination.Addr()
	switch {
	case !r.Destination.IsValid() || !plain(to) || r.Destination != r.Destination.Masked():
		return errors.New("its destination is not a network")
	case r.Source.IsValid() && (!plain(r.Source) || r.Source.Is4() != to.Is4()):
		return fmt.Errorf("the source %s is of another family", r.Source)
	case leads(r.Type) != (len(r.Hops) > 0):
		return fmt.Errorf("a route of the type %d with %d hops", r.Type, len(r.Hops))
	}
	for _, h := range r.Hops {
		switch {
		case !has(h.Link):
			return fmt.Errorf("there is no link %q", h.Link)
		case h.Gateway.IsValid() && (!plain(h.Gateway) || to.Is6() && h.Gateway.Is4()):
			return fmt.Errorf("the gateway %s is of another family", h.Gateway)
		}
	}
	for _, a := range r.Attributes {
		if a.Kind == 0 || a.Kind > unix.RTAX_MAX || a.Kind == unix.RTAX_CC_ALGO {
			return fmt.Errorf("an attribute of the kind %d", a.Kind)
		}
	}
	return most("attributes", len(r.Attributes), unix.RTAX_MAX)
}

// leads reports whether the routes of a type lead to a link, and not to an error.
func leads(kind uint8) bool { return kind == unix.RTN_UNICAST || kind == unix.RTN_MULTICAST }

// plain reports whether an address is one as the kernel has it: without a zone, and not an IPv4
// address in the form of IPv6.
func plain(a netip.Addr) bool { return a.IsValid() && a.Zone() == "" && !a.Is4In6() }
