package options

import (
	"fmt"
	"slices"
	"strings"

	runc "github.com/containerd/containerd/api/types/runc/options"
	generic "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// Parse reads runtime options of any type that clients send (requirements.md#O1). For no
// message, and for an empty one, it returns empty Options. It returns nil only with an
// error.
//
// It also returns the names of settings that have no effect here, such as the path of
// runc's binary. Users who change only the runtime's type in an existing configuration send
// them, so they are not refused. For an unknown type, an invalid value and an unknown field
// of our own message, the error unwraps to errdefs.ErrInvalidArgument.
func Parse(a *anypb.Any) (o *Options, unused []string, err error) {
	switch name := messageName(a.GetTypeUrl()); name {
	case "":
		return &Options{}, nil, nil
	case messageOf(&Options{}):
		o = &Options{}
		err = unmarshal(a, o)
		if unknown := o.ProtoReflect().GetUnknown(); err == nil && len(unknown) > 0 {
			err = invalid("%s: this shim is older than the client and does not know some of the fields", name)
		}
	case messageOf(&runc.Options{}):
		o, unused, err = fromRunc(a)
	case messageOf(&generic.Options{}):
		o, unused, err = fromGeneric(a)
	default:
		err = invalid("their type %q is not known", a.GetTypeUrl())
	}
	if err != nil {
		return nil, nil, fmt.Errorf("runtime options: %w", err)
	}
	return o, unused, nil
}

// Names returns the names of the options that are set, sorted.
func (x *Options) Names() (names []string) {
	x.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		names = append(names, string(f.Name()))
		return true
	})
	slices.Sort(names)
	return names
}

// IsKnown reports whether a message is of a type that Parse reads.
func IsKnown(a *anypb.Any) bool {
	known := []string{"", messageOf(&Options{}), messageOf(&runc.Options{}), messageOf(&generic.Options{})}
	return slices.Contains(known, messageName(a.GetTypeUrl()))
}

// containerds are fields that containerd sets by itself, so no one can act on a list of them.
var containerds = []string{"task_api_address", "task_api_version"}

// fromRunc reads runc's options. Those that concern runc itself are unused.
func fromRunc(a *anypb.Any) (*Options, []string, error) {
	var r runc.Options
	if err := unmarshal(a, &r); err != nil {
		return nil, nil, err
	}
	o := &Options{
		ShimCgroup:   r.ShimCgroup,
		NoPivotRoot:  r.NoPivotRoot,
		NoNewKeyring: r.NoNewKeyring,
		IoUid:        r.IoUid,
		IoGid:        r.IoGid,
	}
	var unused []string
	ours := o.ProtoReflect().Descriptor().Fields()
	r.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if ours.ByName(f.Name()) == nil && !slices.Contains(containerds, string(f.Name())) {
			unused = append(unused, string(f.Name()))
		}
		return true
	})
	slices.Sort(unused)
	if len(r.ProtoReflect().GetUnknown()) > 0 {
		unused = append(unused, "fields of another version of "+messageOf(&r))
	}
	return o, unused, nil
}

func unmarshal(a *anypb.Any, m proto.Message) error {
	if err := proto.Unmarshal(a.GetValue(), m); err != nil {
		return invalid("%s: %v", messageOf(m), err)
	}
	return nil
}

// messageOf returns the name of a message's type, as in an Any.
func messageOf(m proto.Message) string { return string(m.ProtoReflect().Descriptor().FullName()) }

// messageName returns the name of the message in a type URL: the text after the last
// slash. It also accepts a name without a slash, because containerd writes such names.
func messageName(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", fmt.Errorf(format, args...), errdefs.ErrInvalidArgument)
}
