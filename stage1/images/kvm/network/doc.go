// Package network makes a machine take over a network namespace: the links of the namespace become
// NICs of the machine, with the same names, hardware addresses, MTUs, IP addresses, routes and
// permanent neighbours, so that the pod's address is the machine's.
//
// On the host, a Network belongs to one machine and one namespace:
//
//	                  the namespace                         the machine
//	peer ──► eth0 ── ingress, redirected ──► tap0 ── descriptor ──► QEMU ──► eth0
//	peer ◄── eth0 ◄── redirected, ingress ── tap0 ◄── descriptor ── QEMU ◄── eth0
//
// Look reads the namespace, and Follow makes a tap for each of its links. A filter of tc redirects
// each frame that a link receives to the link's tap, and each frame that the machine sends to the
// link. Until Release, the frames of the link go to another tap, of which nothing reads: QEMU discards what it
// receives before it has the NIC, and the machine what it receives before it has the address. Release then sends
// them to the machine. The kernel removes a tap when its descriptors are closed. A filter that is left by a machine
// that was killed is replaced by the next machine, and ends with the namespace.
//
// In the machine, a Guest sets up the NICs by the Config that Look has read. The Config is sent as
// JSON, and ParseConfig reads it.
//
// A namespace is hostile: a process with CAP_NET_ADMIN in it can make links, addresses and routes
// without end, with any name, and change them at any time. Look has a bound for everything, and
// neither side gives a name to anything except the kernel of the machine. Such a process can cut off
// the machine's network, and can reach nothing outside the namespace.
//
// Processes of the host may connect in the namespace, too. A Listener gets all their TCP connections,
// which the host then carries to the machine.
//
// The package does not know QEMU, apps or pods.
package network
