// Package rtnetlink sends requests to rtnetlink(7), in this process's network namespace or in
// another one, and iterates over the answers and their attributes.
//
// A process with CAP_NET_ADMIN in the namespace is no danger to a connection: it can send messages
// to sockets of other processes, but the kernel delivers only its own to a connected socket.
//
// The package knows no devices, addresses or routes: its callers write and read the bodies of
// messages.
package rtnetlink
