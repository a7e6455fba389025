// Package seqpacket has the unix sockets that carry packets and descriptors between an
// entrypoint and the supervisor of its pod, and the streams on which terminals arrive. It
// does not look at the packets.
package seqpacket
