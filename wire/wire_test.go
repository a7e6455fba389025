package wire_test

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	eventsapi "github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	forwardapi "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	typesapi "github.com/containerd/containerd/api/types"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rkt/containerd-shim-rkt-v1/wire"
	"github.com/rkt/containerd-shim-rkt-v1/wire/cgroup1"
	"github.com/rkt/containerd-shim-rkt-v1/wire/cgroup2"
	"github.com/rkt/containerd-shim-rkt-v1/wire/events"
	"github.com/rkt/containerd-shim-rkt-v1/wire/task"
	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// pairs has our messages, and containerd's with the same fields.
var pairs = []struct {
	ours   any
	theirs proto.Message
}{
	{&task.CreateTaskRequest{}, &taskapi.CreateTaskRequest{}},
	{&task.CreateTaskResponse{}, &taskapi.CreateTaskResponse{}},
	{&task.DeleteRequest{}, &taskapi.DeleteRequest{}},
	{&task.DeleteResponse{}, &taskapi.DeleteResponse{}},
	{&task.ExecProcessRequest{}, &taskapi.ExecProcessRequest{}},
	{&task.ResizePtyRequest{}, &taskapi.ResizePtyRequest{}},
	{&task.StateRequest{}, &taskapi.StateRequest{}},
	{&task.StateResponse{}, &taskapi.StateResponse{}},
	{&task.KillRequest{}, &taskapi.KillRequest{}},
	{&task.CloseIORequest{}, &taskapi.CloseIORequest{}},
	{&task.PidsRequest{}, &taskapi.PidsRequest{}},
	{&task.PidsResponse{}, &taskapi.PidsResponse{}},
	{&task.CheckpointTaskRequest{}, &taskapi.CheckpointTaskRequest{}},
	{&task.UpdateTaskRequest{}, &taskapi.UpdateTaskRequest{}},
	{&task.StartRequest{}, &taskapi.StartRequest{}},
	{&task.StartResponse{}, &taskapi.StartResponse{}},
	{&task.WaitRequest{}, &taskapi.WaitRequest{}},
	{&task.WaitResponse{}, &taskapi.WaitResponse{}},
	{&task.StatsRequest{}, &taskapi.StatsRequest{}},
	{&task.StatsResponse{}, &taskapi.StatsResponse{}},
	{&task.ConnectRequest{}, &taskapi.ConnectRequest{}},
	{&task.ConnectResponse{}, &taskapi.ConnectResponse{}},
	{&task.ShutdownRequest{}, &taskapi.ShutdownRequest{}},
	{&task.PauseRequest{}, &taskapi.PauseRequest{}},
	{&task.ResumeRequest{}, &taskapi.ResumeRequest{}},
	{&types.Mount{}, &typesapi.Mount{}},
	{&types.Envelope{}, &typesapi.Envelope{}},
	{&types.Metric{}, &typesapi.Metric{}},
	{&types.Platform{}, &typesapi.Platform{}},
	{&types.ProcessInfo{}, &tasktypes.ProcessInfo{}},
	{&types.RuntimeInfo{}, &typesapi.RuntimeInfo{}},
	{&types.ForwardRequest{}, &forwardapi.ForwardRequest{}},
	{&events.TaskCreate{}, &eventsapi.TaskCreate{}},
	{&events.TaskStart{}, &eventsapi.TaskStart{}},
	{&events.TaskDelete{}, &eventsapi.TaskDelete{}},
	{&events.TaskIO{}, &eventsapi.TaskIO{}},
	{&events.TaskExit{}, &eventsapi.TaskExit{}},
	{&events.TaskOOM{}, &eventsapi.TaskOOM{}},
	{&events.TaskExecAdded{}, &eventsapi.TaskExecAdded{}},
	{&events.TaskExecStarted{}, &eventsapi.TaskExecStarted{}},
	{&events.TaskPaused{}, &eventsapi.TaskPaused{}},
	{&events.TaskResumed{}, &eventsapi.TaskResumed{}},
	{&events.TaskCheckpointed{}, &eventsapi.TaskCheckpointed{}},
	{&cgroup1.Metrics{}, &v1.Metrics{}},
	{&cgroup2.Metrics{}, &v2.Metrics{}},
}

func TestOurMessagesHaveTheFieldsOfContainerds(t *testing.T) {
	for _, p := range pairs {
		sameFields(t, reflect.TypeOf(p.ours).Elem(), reflect.TypeOf(p.theirs).Elem(), p.theirs.ProtoReflect().Descriptor())
	}
	if name := (&v1.Metrics{}).ProtoReflect().Descriptor().FullName(); name != cgroup1.Name {
		t.Errorf("containerd calls statistics of version 1 %s", name)
	}
	if name := (&v2.Metrics{}).ProtoReflect().Descriptor().FullName(); name != cgroup2.Name {
		t.Errorf("containerd calls statistics of version 2 %s", name)
	}
	if name := (&eventsapi.TaskOOM{}).ProtoReflect().Descriptor().FullName(); name != events.Prefix+"TaskOOM" {
		t.Errorf("containerd calls an event %s", name)
	}
	for number, name := range map[types.Status]string{
		types.StatusUnknown: "UNKNOWN", types.StatusCreated: "CREATED", types.StatusRunning: "RUNNING",
		types.StatusStopped: "STOPPED", types.StatusPaused: "PAUSED", types.StatusPausing: "PAUSING",
	} {
		if got := tasktypes.Status(number).String(); got != name {
			t.Errorf("status %d is %s, want %s", number, got, name)
		}
	}
}

// sameFields compares the fields of a struct of ours and of a generated one: names, tags and
// types, also of messages below.
func sameFields(t *testing.T, ours, theirs reflect.Type, d protoreflect.MessageDescriptor) {
	t.Helper()
	if ours == theirs { // a message of protobuf's own
		return
	}
	if ours.Name() != theirs.Name() || ours.NumField() != d.Fields().Len() {
		t.Errorf("%v has %d fields, and %v %d", ours, ours.NumField(), theirs, d.Fields().Len())
	}
	for i := range ours.NumField() {
		f := ours.Field(i)
		g, ok := theirs.FieldByName(f.Name)
		if !ok {
			t.Errorf("%v: there is no field %s", theirs, f.Name)
			continue
		}
		tag, original := f.Tag.Get("protobuf"), g.Tag.Get("protobuf")
		if tag == "" || !bytes.HasPrefix([]byte(original), []byte(tag+",")) {
			t.Errorf("%v.%s has the tag %q, and containerd's %q", ours, f.Name, tag, original)
		}
		mine, its := f.Type, g.Type
		for mine.Kind() == its.Kind() && (mine.Kind() == reflect.Slice || mine.Kind() == reflect.Pointer || mine.Kind() == reflect.Map) {
			mine, its = mine.Elem(), its.Elem()
		}
		switch {
		case mine.Kind() != its.Kind():
			t.Errorf("%v.%s is a %v, and containerd's a %v", ours, f.Name, f.Type, g.Type)
		case mine.Kind() == reflect.Struct:
			sameFields(t, mine, its, reflect.New(its).Interface().(proto.Message).ProtoReflect().Descriptor())
		}
	}
}

// examples are messages with every kind of field.
func examples() []proto.Message {
	at := &timestamppb.Timestamp{Seconds: -1, Nanos: 5}
	any := &anypb.Any{TypeUrl: "t", Value: []byte{0, 1}}
	return []proto.Message{
		&taskapi.CreateTaskRequest{
			ID: "a", Bundle: "/b", Terminal: true, Options: any,
			Rootfs: []*typesapi.Mount{{Type: "overlay", Options: []string{"lowerdir=/x", "", "ü"}}, {}},
		},
		&taskapi.StateResponse{ID: "a", Pid: 1 << 31, Status: tasktypes.Status_PAUSED, ExitedAt: at},
		&taskapi.UpdateTaskRequest{ID: "a", Resources: any, Annotations: map[string]string{"": "x", "k": ""}},
		&taskapi.PidsResponse{Processes: []*tasktypes.ProcessInfo{{Pid: 1}, {Pid: 2, Info: any}}},
		&forwardapi.ForwardRequest{Envelope: &typesapi.Envelope{Timestamp: at, Namespace: "n", Topic: "/t", Event: any}},
		&v1.Metrics{CPU: &v1.CPUStat{Usage: &v1.CPUUsage{Total: 1 << 63, PerCPU: []uint64{0, 1, 1 << 40}}}, Pids: &v1.PidsStat{}},
		&v2.Metrics{CPU: &v2.CPUStat{PSI: &v2.PSIStats{Some: &v2.PSIData{Avg10: 1.5, Total: 3}}}},
	}
}

// Protobuf reads what we have read and written again, and finds the same. What one refuses the
// other refuses, too.
func FuzzMessagesAreReadAndWrittenAsByProtobuf(f *testing.F) {
	for _, m := range examples() {
		text, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add(append(text, text...)) // merged
	}
	f.Add([]byte("\x0a\x01\xff"))                                     // not UTF-8
	f.Add([]byte("\x08\x01"))                                         // a number in place of a string
	f.Add([]byte("\x1a\x06\x0a\x01k\x12\x01\xff"))                    // an entry of a map that is not UTF-8
	f.Add([]byte("\xfa\x07\x01x"))                                    // an unknown field
	f.Add([]byte("\x0b\x0c"))                                         // a group
	f.Add([]byte("\x80\x80\x80\x80\x10\x01"))                         // a number that is too large
	f.Add([]byte("\x8a\x80\x00\x81\x00a"))                            // longer numbers than needed
	f.Add([]byte("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"))     // a number of more than 64 bits
	f.Add([]byte("\x0b\x13\x0a\x01x\x14\x0c"))                        // a group in a group
	f.Add([]byte("\x0b\x13\x0c\x14"))                                 // groups that end in the wrong order
	f.Add([]byte("\x1a\x0a\x0a\x08\x20\x01\x20\x02\x22\x02\x03\x04")) // packed, and not
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, p := range pairs {
			ours := reflect.New(reflect.TypeOf(p.ours).Elem()).Interface()
			theirs := p.theirs.ProtoReflect().New().Interface()
			want := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, theirs)
			err := wire.Decode(text, ours)
			if (err == nil) != (want == nil) {
				t.Errorf("%T: %v, and protobuf says %v", ours, err, want)
			}
			if err != nil || want != nil {
				continue
			}
			written, err := wire.Encode(ours)
			if err != nil {
				t.Errorf("%T: write %+v: %v", ours, ours, err)
			}
			again := p.theirs.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(written, again); err != nil || !proto.Equal(theirs, again) {
				t.Errorf("%T: %v became %v, %v", ours, theirs, again, err)
			}
			sameAfter(t, p.ours, theirs)
			if proto.Size(theirs) == 0 {
				continue // there is nothing that a second reading could be merged with
			}
			want = proto.UnmarshalOptions{DiscardUnknown: true, Merge: true}.Unmarshal(text, theirs)
			if err := wire.Decode(text, ours); err != nil || want != nil {
				t.Errorf("%T, the second time: %v, and protobuf says %v", ours, err, want)
			}
			sameMessage(t, ours, theirs)
		}
	})
}

// sameAfter tests that a message of theirs, as protobuf writes it, is read as the same message.
func sameAfter(t *testing.T, like any, theirs proto.Message) {
	t.Helper()
	text, err := proto.Marshal(theirs)
	if err != nil {
		t.Fatal(err)
	}
	ours := reflect.New(reflect.TypeOf(like).Elem()).Interface()
	if err := wire.Decode(text, ours); err != nil {
		t.Errorf("%T: %q of protobuf's: %v", ours, text, err)
	}
	sameMessage(t, ours, theirs)
}

// sameMessage tests that protobuf reads what is written of ours as theirs.
func sameMessage(t *testing.T, ours any, theirs proto.Message) {
	t.Helper()
	text, err := wire.Encode(ours)
	if err != nil {
		t.Errorf("%T: write %+v: %v", ours, ours, err)
	}
	again := theirs.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(text, again); err != nil || !proto.Equal(theirs, again) {
		t.Errorf("%T: %+v became %v (%v), want %v", ours, ours, again, err, theirs)
	}
}

// Each message of ours is written as protobuf writes the message of containerd's with the same
// values, and is refused if protobuf refuses that one. No text has to be read for these values: a
// string may not be UTF-8, for example.
func FuzzValuesAreWrittenAsByProtobuf(f *testing.F) {
	f.Add([]byte("\x01\x03abc\x01\x01\x02\x01\x00\x01\x02\xff\xfe"))
	f.Add(bytes.Repeat([]byte{1}, 400))
	f.Add(bytes.Repeat([]byte{2}, 400))
	f.Add(bytes.Repeat([]byte{2, 'a', 'b', 0, 255}, 100))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, p := range pairs {
			ours := reflect.New(reflect.TypeOf(p.ours).Elem())
			theirs := p.theirs.ProtoReflect().New().Interface()
			s := source(text)
			s.fill(ours.Elem(), reflect.ValueOf(theirs).Elem())
			want, wantErr := proto.Marshal(theirs)
			got, err := wire.Encode(ours.Interface())
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%T: %v, and protobuf says %v", p.ours, err, wantErr)
			}
			if err != nil {
				continue
			}
			a, b := p.theirs.ProtoReflect().New().Interface(), p.theirs.ProtoReflect().New().Interface()
			if err := errors.Join(proto.Unmarshal(got, a), proto.Unmarshal(want, b)); err != nil || !proto.Equal(a, b) {
				t.Fatalf("%T: %v is written as %q, and by protobuf as %q (%v)", p.ours, theirs, got, want, err)
			}
			sameAfter(t, p.ours, b)
		}
	})
}

// source is a text that decides the values of a message.
type source []byte

// number cuts off n bytes, and returns 0 after the end.
func (s *source) number(n int) (v uint64) {
	for range n {
		v <<= 8
		if len(*s) > 0 {
			v |= uint64((*s)[0])
			*s = (*s)[1:]
		}
	}
	return v
}

func (s *source) bytes() []byte {
	n := min(int(s.number(1)), len(*s))
	defer func() { *s = (*s)[n:] }()
	return bytes.Clone((*s)[:n])
}

// fill sets two values, whose types have the same fields, to the same.
func (s *source) fill(ours, theirs reflect.Value) {
	switch ours.Kind() {
	case reflect.Struct:
		for i := range ours.NumField() {
			if name := ours.Type().Field(i).Name; ours.Type().Field(i).IsExported() {
				s.fill(ours.Field(i), theirs.FieldByName(name))
			}
		}
	case reflect.Pointer:
		if s.number(1)%2 == 1 {
			ours.Set(reflect.New(ours.Type().Elem()))
			theirs.Set(reflect.New(theirs.Type().Elem()))
			s.fill(ours.Elem(), theirs.Elem())
		}
	case reflect.Slice:
		if ours.Type().Elem().Kind() == reflect.Uint8 {
			b := s.bytes()
			ours.SetBytes(b)
			theirs.SetBytes(b)
			return
		}
		n := int(s.number(1) % 4)
		ours.Set(reflect.MakeSlice(ours.Type(), n, n))
		theirs.Set(reflect.MakeSlice(theirs.Type(), n, n))
		for i := range n {
			s.fill(ours.Index(i), theirs.Index(i))
		}
	case reflect.Map:
		ours.Set(reflect.MakeMap(ours.Type()))
		theirs.Set(reflect.MakeMap(theirs.Type()))
		for range s.number(1) % 4 {
			key, value := reflect.ValueOf(string(s.bytes())), reflect.New(ours.Type().Elem()).Elem()
			other := reflect.New(theirs.Type().Elem()).Elem()
			s.fill(value, other)
			ours.SetMapIndex(key, value)
			theirs.SetMapIndex(key, other)
		}
	case reflect.String:
		text := string(s.bytes())
		ours.SetString(text)
		theirs.SetString(text)
	case reflect.Float64:
		n := math.Float64frombits(s.number(8))
		ours.SetFloat(n)
		theirs.SetFloat(n)
	case reflect.Bool:
		b := s.number(1)%2 == 1
		ours.SetBool(b)
		theirs.SetBool(b)
	default:
		n := reflect.ValueOf(s.number(8))
		ours.Set(n.Convert(ours.Type()))
		theirs.Set(n.Convert(theirs.Type()))
	}
}

func TestAPackedMessageIsWhatProtobufReads(t *testing.T) {
	packed, err := wire.Pack(&task.ConnectResponse{ShimPid: 7, Version: "x"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := proto.Marshal(packed)
	if err != nil {
		t.Fatal(err)
	}
	var theirs taskapi.ConnectResponse
	if err := proto.Unmarshal(text, &theirs); err != nil || theirs.ShimPid != 7 || theirs.Version != "x" {
		t.Errorf("%v, %v", &theirs, err)
	}
	var ours task.ConnectResponse
	if err := wire.Unpack(packed, &ours); err != nil || ours.ShimPid != 7 || ours.Version != "x" {
		t.Errorf("%+v, %v", ours, err)
	}
}

func TestAStringThatIsNotUTF8IsNotWritten(t *testing.T) {
	if text, err := wire.Encode(&types.Mount{Options: []string{"\xff"}}); err == nil {
		t.Errorf("wrote %q", text)
	}
}
