package machine_test

import (
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
)

// QEMU tells the guest the name of a port before it tells that the host has opened its end. In
// between the guest's reads find the end of the port.
func TestAGuestWaitsForTheHostsEndOfAPort(t *testing.T) {
	c, g := config(t)
	boot(t, c, g)
	path := filepath.Join(t.TempDir(), "port")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	socket, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := machine.Execute(t.Context(), g.Machine, "getfd", map[string]any{"fdname": "late"}, nil, socket); err != nil {
		t.Fatal(err)
	}
	address := map[string]any{"type": "fd", "data": map[string]any{"str": "late"}}
	for _, command := range []struct {
		name      string
		arguments map[string]any
	}{
		{"chardev-add", map[string]any{"id": "late", "backend": map[string]any{
			"type": "socket", "data": map[string]any{"addr": address, "server": true, "wait": false},
		}}},
		{"device_add", map[string]any{"driver": "virtio-serial-pci", "id": "serial1", "bus": "port0"}},
		{"device_add", map[string]any{"driver": "virtserialport", "bus": "serial1.0", "chardev": "late", "name": "late"}},
	} {
		if err := machine.Execute(t.Context(), g.Machine, command.name, command.arguments, nil); err != nil {
			t.Fatal(err)
		}
	}
	ports := "/sys/class/virtio-ports"
	wait.Until(t, "the guest has the port", func() bool {
		for name := range strings.FieldsSeq(g.ask("list", ports)) {
			if g.ask("read", ports+"/"+name+"/name") == "late\n" {
				return true
			}
		}
		return false
	})
	if _, err := io.WriteString(g.to, "heard late\n"); err != nil {
		t.Fatal(err)
	}
	type chardev struct {
		Label string `json:"label"`
		Open  bool   `json:"frontend-open"`
	}
	wait.Until(t, "the guest has opened the port", func() bool {
		var all []chardev
		if err := machine.Execute(t.Context(), g.Machine, "query-chardev", nil, &all); err != nil {
			t.Fatal(err)
		}
		return slices.Contains(all, chardev{"late", true})
	})
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "words\n"); err != nil {
		t.Fatal(err)
	}
	if got := g.hear(); got != "words\n" {
		t.Errorf("the guest has heard %q", got)
	}
}
