// Package netdevice moves network devices of the host into the network namespace of an app
// and, if the app cannot be made after all, back again.
//
// A device keeps its hardware address, MTU and other attributes, because the kernel moves the
// device itself. The kernel takes its IP addresses away; the permanent ones of global scope are
// added again, as the runtime-spec demands (config-linux.md, Network Devices), and the device
// is brought up. Routes are lost.
//
// All devices and names are looked up before the first device is moved. The move, the new name
// and the new index are one request, so no other process of the namespace can get between them,
// and later requests name the device by its index.
//
// The package speaks rtnetlink itself, and knows no app and no spec.
package netdevice
