package network

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

const eth0 = `{"name":"eth0","mac":"02:00:00:00:00:07","mtu":1400,"addresses":[{"prefix":"192.0.2.7/24","broadcast":"192.0.2.255"}]}`

func TestAConfigIsReadStrictly(t *testing.T) {
	whole := `{"links":[` + eth0 + `],"routes":[{"destination":"0.0.0.0/0","type":1,"hops":[{"link":"eth0","gateway":"192.0.2.1"}]}]}`
	if _, err := ParseConfig([]byte(whole)); err != nil {
		t.Fatal(err)
	}
	link := func(old, new string) string {
		return `{"links":[` + strings.Replace(eth0, old, new, 1) + `]}`
	}
	route := func(text string) string { return `{"links":[` + eth0 + `],"routes":[` + text + `]}` }
	neighbour := func(text string) string { return `{"links":[` + eth0 + `],"neighbours":[` + text + `]}` }
	for text, want := range map[string]string{
		``:                                   "EOF",
		`{} {}`:                              "there is more",
		`{"link":[]}`:                        `unknown field "link"`,
		`{"links":[{}]}`:                     `link ""`,
		link(`"eth0"`, `"../x"`):             "the name of a link",
		link(`"eth0"`, `"lo"`):               "the name of a link",
		link(`"eth0"`, `".."`):               "the name of a link",
		link(`"eth0"`, `"a b"`):              "the name of a link",
		link(`"eth0"`, `"eth%d"`):            "the name of a link",
		link(`"eth0"`, `"eth0123456789012"`): "the name of a link",
		link(`02:00:00:00:00:07`, `03:00:00:00:00:07`): "is not that of one link",
		link(`02:00:00:00:00:07`, `00:00:00:00:00:00`): "is not that of one link",
		link(`02:00:00:00:00:07`, `02:00:00:00:00`):    "is no hardware address",
		link(`02:00:00:00:00:07`, `02:00:00:00:00:7`):  "is no hardware address",
		link(`02:00:00:00:00:07`, `02:00:00:00:00:-7`): "is no hardware address",
		link(`1400`, `67`):                                                                                    "the MTU 67",
		link(`1400`, `65522`):                                                                                 "the MTU 65522",
		link(`192.0.2.7/24`, ``):                                                                              "it is not an address",
		link(`192.0.2.7/24`, `192.0.2.7/33`):                                                                  "prefix length out of range",
		link(`192.0.2.7/24`, `::ffff:192.0.2.7/128`):                                                          "it is not an address",
		link(`192.0.2.7/24`, `2001:db8::7/64`):                                                                "the broadcast address 192.0.2.255 is of another family",
		link(`"broadcast":"192`, `"peer":"::1","broadcast":"192`):                                             "the peer ::1 is of another family",
		`{"links":[` + eth0 + `,` + eth0 + `]}`:                                                               "another link has its name",
		route(`{"destination":"192.0.2.7/24","type":1,"hops":[{"link":"eth0"}]}`):                             "its destination is not a network",
		route(`{"destination":"0.0.0.0/0","type":1}`):                                                         "of the type 1 with 0 hops",
		route(`{"destination":"0.0.0.0/0","type":6,"hops":[{"link":"eth0"}]}`):                                "of the type 6 with 1 hops",
		route(`{"destination":"0.0.0.0/0","type":1,"hops":[{"link":"eth1"}]}`):                                `there is no link "eth1"`,
		route(`{"destination":"0.0.0.0/0","type":6,"source":"::1"}`):                                          "the source ::1",
		route(`{"destination":"::/0","type":1,"hops":[{"link":"eth0","gateway":"1.2.3.4"}]}`):                 "the gateway 1.2.3.4",
		route(`{"destination":"::/0","type":1,"hops":[{"link":"eth0","gateway":"fe80::1%eth0"}]}`):            "the gateway fe80::1%eth0",
		route(`{"destination":"0.0.0.0/0","type":6,"attributes":[{"kind":16,"value":1}]}`):                    "an attribute of the kind 16",
		route(`{"destination":"0.0.0.0/0","type":6,"attributes":[{"kind":18,"value":1}]}`):                    "an attribute of the kind 18",
		neighbour(`{"link":"eth1","address":"192.0.2.1","mac":"02:00:00:00:00:01"}`):                          "neighbour 192.0.2.1",
		neighbour(`{"link":"eth0","address":"","mac":"02:00:00:00:00:01"}`):                                   "neighbour invalid IP",
		route(strings.TrimSuffix(strings.Repeat(`{"destination":"10.0.0.0/8","type":6},`, maxRoutes+1), ",")): "more than 1024 routes",
		route(`{"destination":"10.0.0.0/8","type":1,"hops":[` + strings.TrimSuffix(strings.Repeat(`{"link":"eth0"},`, maxHops+1), ",") + `]}`): "more than 1024 hops",
		strings.Repeat(" ", MaxConfig) + "{}": "more than 1048576 bytes",
	} {
		if _, err := ParseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s: %v, not %q", text, err, want)
		}
	}
}

// The largest Config that check accepts is one that ParseConfig reads.
func TestTheLargestConfigFits(t *testing.T) {
	var c Config
	for i := range maxLinks {
		l := Link{Name: fmt.Sprintf("link%011d", i), MAC: MAC{2, 5: byte(i)}, MTU: maxMTU, NoARP: true, NoIPv6: true, AcceptRA: -1 << 31}
		for range maxAddresses / maxLinks {
			l.Addresses = append(l.Addresses, Address{Prefix: longest, Peer: longest.Addr(), Scope: 255})
		}
		c.Links = append(c.Links, l)
	}
	var attributes []Attribute
	for kind := range uint16(15) {
		attributes = append(attributes, Attribute{kind + 1, 1<<32 - 1})
	}
	for range maxRoutes {
		c.Routes = append(c.Routes, Route{Destination: longest, Type: 1, Protocol: 255, Scope: 255, Source: longest.Addr(), Metric: 1<<32 - 1,
			Hops: []Hop{{Link: c.Links[0].Name, Gateway: longest.Addr(), OnLink: true, Weight: 255}}, Attributes: attributes})
	}
	for range maxNeighbours {
		c.Neighbours = append(c.Neighbours, Neighbour{Link: c.Links[0].Name, Address: longest.Addr(), MAC: c.Links[0].MAC})
	}
	text, err := json.Marshal(c)
	must(t, err)
	got, err := ParseConfig(text)
	must(t, err)
	if !reflect.DeepEqual(got, c) {
		t.Error("another Config was read")
	}
}

var longest = netip.MustParsePrefix("2001:db8:1111:2222:3333:4444:5555:6666/128")

func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"links":[]}`))
	f.Add([]byte(`{"links":[` + eth0 + `],"routes":[{"destination":"0.0.0.0/0","type":1,"hops":[{"link":"eth0","gateway":"192.0.2.1"}]}]}`))
	f.Add([]byte(`{"links":[` + eth0 + `],"neighbours":[{"link":"eth0","address":"fe80::1","mac":"02:00:00:00:00:01"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig(text)
		if err != nil {
			return
		}
		once, err := json.Marshal(c)
		must(t, err)
		c, err = ParseConfig(once)
		must(t, err)
		twice, err := json.Marshal(c)
		must(t, err)
		if !bytes.Equal(once, twice) {
			t.Errorf("%s becomes %s", once, twice)
		}
	})
}

func TestAConfigurationWithoutALinkHasNothingOfIt(t *testing.T) {
	route := func(metric uint32, links ...string) Route {
		r := Route{Metric: metric}
		for _, l := range links {
			r.Hops = append(r.Hops, Hop{Link: l})
		}
		return r
	}
	c := Config{
		Links:      []Link{{Name: "eth0"}, {Name: "net1"}},
		Routes:     []Route{route(1, "eth0"), route(2, "net1"), route(3, "net1", "eth0"), route(4)},
		Neighbours: []Neighbour{{Link: "net1"}, {Link: "eth0"}},
	}
	want := Config{
		Links:      []Link{{Name: "eth0"}},
		Routes:     []Route{route(1, "eth0"), route(3, "eth0"), {Metric: 4}},
		Neighbours: []Neighbour{{Link: "eth0"}},
	}
	if got := c.Without("net1"); !reflect.DeepEqual(got, want) {
		t.Errorf("without net1 there is %+v", got)
	}
	if len(c.Routes[2].Hops) != 2 {
		t.Errorf("the configuration has changed: %+v", c)
	}
}
