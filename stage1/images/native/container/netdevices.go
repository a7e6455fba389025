package container

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/netdevice"
)

// NetDevices returns the network devices of a spec that PrepareApp has accepted, in the order of
// their names on the host.
func NetDevices(spec *specs.Spec) ([]netdevice.Device, error) {
	ns, err := parseNamespaces(spec.Linux)
	if err != nil {
		return nil, err
	}
	return parseNetDevices(spec.Linux.NetDevices, ns)
}

func parseNetDevices(devices map[string]specs.LinuxNetDevice, ns namespaces) (list []netdevice.Device, err error) {
	if len(devices) > 0 && !ns.private(specs.NetworkNamespace) {
		return nil, fmt.Errorf("linux.netDevices: the app is in the host's network namespace, where the devices are already")
	}
	for _, host := range slices.Sorted(maps.Keys(devices)) {
		inside := devices[host].Name
		if inside == "" {
			inside = host
		}
		if !deviceName(host) || strings.Contains(host, "%") {
			return nil, fmt.Errorf("linux.netDevices: %q is not the name of a network device", host)
		}
		if template := strings.Replace(inside, "%d", "", 1); !deviceName(inside) || strings.Contains(template, "%") {
			return nil, fmt.Errorf("linux.netDevices[%q].name: %q is not the name of a network device, nor a template with one %%d", host, inside)
		}
		list = append(list, netdevice.Device{Host: host, Inside: inside})
	}
	return list, nil
}

// deviceName reports whether the kernel accepts a name for a network device.
func deviceName(name string) bool {
	return name != "" && len(name) < unix.IFNAMSIZ && name != "." && name != ".." &&
		!strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == ':' || r == 0 || unicode.IsSpace(r) })
}

// awaitNetDevices makes the supervisor move the network devices. This comes before the
// sysctls, which may name the devices.
func (a *appInit) awaitNetDevices() error {
	if !a.NetDevices {
		return nil
	}
	if err := send(Message{Word: WordNetDevices}); err != nil {
		return err
	}
	await(WordGo)
	return nil
}
