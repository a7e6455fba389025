package wire

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"
)

// Pack returns a message in the form in which ttrpc sends it: as the unknown fields of an empty
// message of protobuf, which protobuf writes as they are.
func Pack(message any) (*emptypb.Empty, error) {
	text, err := Encode(message)
	if err != nil {
		return nil, err
	}
	packed := new(emptypb.Empty)
	packed.ProtoReflect().SetUnknown(text)
	return packed, nil
}

// Unpack reads a message from what ttrpc has received as an empty message.
func Unpack(packed *emptypb.Empty, message any) error {
	return Decode(packed.ProtoReflect().GetUnknown(), message)
}

// Client is a client of ttrpc.
type Client interface {
	Call(ctx context.Context, service, method string, request, response any) error
}

// Call calls a method with messages of this package. An error of the call is returned as it is.
func Call(ctx context.Context, c Client, service, method string, request, response any) error {
	packed, err := Pack(request)
	if err != nil {
		return err
	}
	var answer emptypb.Empty
	if err := c.Call(ctx, service, method, packed, &answer); err != nil {
		return err
	}
	return Unpack(&answer, response)
}
