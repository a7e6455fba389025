// Package channel carries calls, streams and notices between the host and the agent of a
// machine, on one connection: the machine's virtio-serial port.
//
// It begins when the host has woken the machine (Sleep, WakeGuest).
//
// The connection is multiplexed by yamux. The host opens every stream, and the agent opens
// none. The first message of a stream says what the stream is for:
//
//	call    a call: its header, and then the answers of the agent
//	data    the data of an app's or exec's descriptor: input in messages, output as it is
//	hello   the agent's version, and then its notices, until the connection ends
//
// A message is a word, a blank and the number of bytes that follow, on a line, and these
// bytes, as in docs/stage1-abi.md, section 11.
//
// The agent trusts the host. The host trusts nothing that it receives: Host lets no frame
// pass that an agent of this project does not send, each message has a limit, and what was
// received and not yet read is bounded by yamux's windows.
package channel
