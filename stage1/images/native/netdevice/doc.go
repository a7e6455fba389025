// Package netdevice moves network devices of the host into the network namespace of an app,
// and moves them back if the app cannot be made.
//
// A device keeps its hardware address, MTU and other attributes, because the kernel moves
// the device itself. The kernel removes its IP addresses. The package adds the permanent
// ones of global scope again, as the runtime-spec demands (config-linux.md, Network
// Devices), and brings the device up. Routes are lost.
//
// All devices and names are looked up before the first device is moved. The move, the new name
// and the new index are one request, so no other process of the namespace can get between them,
// and later requests name the device by its index.
//
// The package knows no app and no spec.
package netdevice
