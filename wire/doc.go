// Package wire reads and writes the messages of containerd's services as protobuf does, but
// keeps no tables. Of each message that package protobuf meets it makes a description of all
// fields, and of all messages in the same file, and keeps them: 0.2 MB for the messages of one
// pod, in a server that every pod has. Package wire looks at the types each time.
//
// A message is a struct whose fields have protobuf's tags, such as those of generated code:
//
//	PID uint32 `protobuf:"varint,1"`
//
// A message below another one is a pointer, or a struct if it does not matter whether it was there.
// The package has no oneofs, no groups and no zigzag numbers, which none of the messages have.
// It knows no names of messages.
package wire
