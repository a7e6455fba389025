// Package seqpacket has unix sockets for packets and descriptors, by which an entrypoint
// and the supervisor of its pod communicate, and for the streams on which terminals
// arrive. It does not interpret packets.
package seqpacket
