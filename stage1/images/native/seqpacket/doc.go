// Package seqpacket is unix sockets that carry packets and descriptors, as an entrypoint
// and the supervisor of its pod use them, and streams by which terminals come.
//
// It moves bytes. What a packet means is package wire's to say, or its user's.
package seqpacket
