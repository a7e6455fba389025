package hostile

import (
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/machines"
)

// A privileged container is the machine's owner, and the machine is hostile for the host. Package machine
// of the stage1 kvm attacks from a QEMU that a guest has taken over, and packages channel, supervisor and
// network are attacked by agents that send anything.
func TestAContainerWithAllRightsInItsMachineGetsNothingOfTheHosts(t *testing.T) {
	if !machines.Only() {
		t.Skip("attacks a machine: make test-kvm-hostile")
	}
	const none = "no release is known that lost so; the container has reached the shares, and a place that it could change would be seen"
	hostile(t, attack{classes: "class of CVE-2020-35517", name: "a privileged container attacks the shares of its machine, and the port of its agent", modes: []mode{
		{name: "privileged", unproved: none, try: func(l *lab) {
			l.once(func() {
				s := spec{image: plainImage, args: []string{"/bin/attacker", "share"}, opts: []oci.SpecOpts{
					oci.WithPrivileged, oci.WithAllDevicesAllowed, oci.WithMounts([]specs.Mount{bind(l.volume("v"), "/vol")}),
				}}
				if err := l.victim(s); err != nil {
					l.t.Fatal(err)
				}
				said := l.said.peek()
				l.t.Log(said)
				// Its own root, and that of the container which keeps the machine; its volume.
				if strings.Count(said, "reached a place of roots\n") != 2 || !strings.Contains(said, "reached a place of pod\n") ||
					!strings.Contains(said, "reached a file by a handle\n") || !strings.Contains(said, "reached a port: device or resource busy\n") {
					l.t.Fatal("the shares and the port were not attacked")
				}
			})
		}},
	}})
}
