package early

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// groups returns a message of groups, one in the other.
func groups(depth int) []byte {
	return append(bytes.Repeat([]byte{0x0b}, depth), bytes.Repeat([]byte{0x0c}, depth)...)
}

// Fields are those that protobuf's library finds, and a text without fields is refused by both.
func FuzzFieldsAreThoseOfProtobuf(f *testing.F) {
	f.Add([]byte("\x08\x01\x12\x02ab\x19abcdefgh\x25abcd"))
	f.Add([]byte("\x88\x80\x00\x81\x00"))                             // longer numbers than needed
	f.Add([]byte("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))     // the largest number
	f.Add([]byte("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"))     // a larger one
	f.Add([]byte("\xf8\xff\xff\xff\x0f\x01\x80\x80\x80\x80\x10\x01")) // the largest field, and a larger one
	f.Add([]byte("\x0b\x13\x0c\x14"))                                 // groups that end in the wrong order
	f.Add([]byte("\x00\x01\x0e\x0f"))                                 // types that do not exist
	f.Add(groups(3))
	f.Fuzz(sameFields)
}

func sameFields(t *testing.T, text []byte) {
	t.Helper()
	var got []field
	err := readFields(text, func(f field) error {
		got = append(got, f)
		return nil
	})
	if want := proto.Unmarshal(text, &emptypb.Empty{}); (err == nil) != (want == nil) {
		t.Fatalf("%.100q: %v, and protobuf says %v", text, err, want)
	}
	if err != nil {
		return
	}
	for _, f := range got {
		number, kind, n := protowire.ConsumeTag(text)
		if uint64(number) != f.number || uint64(kind) != f.wire {
			t.Fatalf("%+v, and protobuf says field %d of type %d", f, number, kind)
		}
		text = text[n:]
		size := protowire.ConsumeFieldValue(number, kind, text)
		if v, _ := protowire.ConsumeVarint(text); f.wire == wireVarint && f.varint != v {
			t.Fatalf("%+v, and protobuf says %d", f, v)
		}
		if v, _ := protowire.ConsumeBytes(text); f.wire == wireBytes && !bytes.Equal(f.bytes, v) {
			t.Fatalf("%+v, and protobuf says %q", f, v)
		}
		text = text[size:]
	}
	if len(text) > 0 {
		t.Fatalf("%.100q is not read", text)
	}
}

func TestTheDepthOfGroupsIsLimitedAsByProtobuf(t *testing.T) {
	for _, depth := range []int{9999, 10000, 10001, 10002} {
		sameFields(t, groups(depth))
	}
}

// A response that ttrpc's own client understands is understood in the same way. One that ttrpc
// refuses has no answer, but for texts that are not looked at: the words of an error.
func FuzzResponsesAreReadAsByTTRPC(f *testing.F) {
	f.Add(answer(f, stateStream, 5, nil))
	f.Add(answer(f, connectStream, 0, &task.ConnectResponse{ShimPid: 77, Version: "v"}))
	frame := func(response string) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(len(response)))
		return append(append(b, 0, 0, 0, stateStream, frameResponse, 0), response...)
	}
	f.Add(frame("\x0a\x06\x08\x80\x80\x80\x80\x10")) // a code of more than 32 bits
	f.Add(frame("\x0a\x02\x08\x05\x0a\x00"))         // a status that is merged with an empty one
	f.Add(frame("\x0a\x03\x12\x01\xff"))             // words that are not UTF-8
	f.Add(frame("\x12\x02\x08\x01\x12\x02\x08\x02")) // the payload twice
	f.Fuzz(func(t *testing.T, b []byte) {
		stream, payload, code, err := readResponse(bytes.NewReader(b))
		if len(b) < headerSize || b[8] != frameResponse || uint64(len(b)-headerSize) < uint64(binary.BigEndian.Uint32(b)) {
			if err == nil {
				t.Fatalf("%q is a response", b)
			}
			return
		}
		var r ttrpc.Response
		text := b[headerSize:][:binary.BigEndian.Uint32(b)]
		if want := proto.Unmarshal(text, &r); want != nil {
			return
		}
		if err != nil || stream != binary.BigEndian.Uint32(b[4:]) || code != r.Status.GetCode() || !bytes.Equal(payload, r.Payload) {
			t.Fatalf("stream %d, %q, code %d, %v; ttrpc says %v", stream, payload, code, err, &r)
		}
	})
}

// The texts that this package writes are those that protobuf's library writes.
func FuzzMessagesAreWrittenAsByProtobuf(f *testing.F) {
	f.Add("c1", uint32(0), uint32(0), int64(0), uint32(0))
	f.Add("", uint32(math.MaxUint32), uint32(137), int64(-1), uint32(999999999))
	f.Fuzz(func(t *testing.T, id string, pid, status uint32, seconds int64, nanos uint32) {
		at := time.Unix(seconds, int64(nanos))
		var got bytes.Buffer
		if err := (Exit{pid, status, at}).Write(&got); err != nil {
			t.Fatal(err)
		}
		want := &task.DeleteResponse{Pid: pid, ExitStatus: status, ExitedAt: timestamppb.New(at)}
		if !at.IsZero() && !bytes.Equal(got.Bytes(), encoded(t, want)) {
			t.Fatalf("%v is written as %q", want, got.Bytes())
		}
		call := appendCall(nil, pid, "State", id, OwnerAnswerLimit)
		state, err := proto.Marshal(&task.StateRequest{ID: id})
		if err != nil {
			return // not UTF-8, and no name of a container
		}
		var request ttrpc.Request
		if err := proto.Unmarshal(call[headerSize:], &request); err != nil || len(request.ProtoReflect().GetUnknown()) > 0 ||
			request.Service != taskService || request.Method != "State" || request.TimeoutNano != int64(OwnerAnswerLimit) {
			t.Fatalf("%q is the call %v (%v)", call, &request, err)
		}
		var of task.StateRequest
		if err := proto.Unmarshal(request.Payload, &of); err != nil || of.ID != id || len(of.ProtoReflect().GetUnknown()) > 0 {
			t.Fatalf("the call is for %v (%v), want %q; protobuf writes %q", &of, err, id, state)
		}
	})
}

// The annotations of a config.json are those that encoding/json finds, which is how containerd
// and the server read it, if the document has them once.
func FuzzAnnotationsAreThoseOfEncodingJSON(f *testing.F) {
	f.Add([]byte(`{"ociVersion":"1","annotations":{"a":"b","a":"c","\u0062":"\ud800"},"linux":{}}`))
	f.Add([]byte(`{"process":{"annotations":{"a":"b"}},"annotations":null}`))
	f.Add([]byte(`{"ANNOTATIONS":{"a":"b"}}`))
	f.Add([]byte(`{"annotation\u017f":{"a":"b"}}`))
	f.Add([]byte(`{"annotations":{"a":1}}`))
	f.Add([]byte("{\"\xff\":[{}],\"annotations\":{\"\xff\":\"\xfe\"}} "))
	f.Add([]byte(`{"annotations":{"a":"b"},"Annotations":{"c":"d"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := scanAnnotations(json.NewDecoder(bytes.NewReader(text)))
		var spec struct {
			Annotations map[string]string `json:"annotations"`
		}
		if want := json.Unmarshal(text, &spec); want != nil {
			return // the rest of a document is the server's to refuse
		}
		if string(bytes.TrimSpace(text)) != "null" && (err != nil || !maps.Equal(got, spec.Annotations)) && !twice(t, text) {
			t.Fatalf("%q: %v (%v), want %v", text, got, err, spec.Annotations)
		}
	})
}

// twice reports whether a document has annotations more than once.
func twice(t *testing.T, text []byte) bool {
	t.Helper()
	dec, n := json.NewDecoder(bytes.NewReader(text)), 0
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
	for dec.More() {
		key, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			t.Fatal(err)
		}
		if name, ok := key.(string); ok && strings.EqualFold(name, "annotations") {
			n++
		}
	}
	return n > 1
}

// Flags that this program knows are read as by package flag.
func FuzzFlagsAreReadAsByPackageFlag(f *testing.F) {
	f.Add("-namespace ns --id=c1 -address /run/c.sock -debug=true -socket s delete")
	f.Add("-id -id -debug start")
	f.Add("-debug=perhaps -- -id x")
	f.Add("-id=a=b - delete")
	f.Add("---id c")
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, " ")
		got, err := ParseFlags(args)
		want := &Flags{}
		fs := want.set()
		fs.SetOutput(io.Discard)
		wantErr := fs.Parse(args)
		if wantErr != nil {
			if unknown := strings.Contains(wantErr.Error(), "not defined"); err == nil && !unknown {
				t.Fatalf("%q: %+v, and package flag says %v", args, got, wantErr)
			}
			return
		}
		if want.Action, want.Argument = fs.Arg(0), fs.Arg(1); want.Action != "" && !isAction(want.Action) {
			return
		}
		if err != nil || len(got.unknown) > 0 {
			t.Fatalf("%q: %+v, %v", args, got, err)
		}
		values := func(f *Flags) []string {
			return []string{f.Namespace, f.ID, f.Address, f.publishBinary, f.Bundle, f.Socket, f.debugSocket, f.Action, f.Argument}
		}
		if !slices.Equal(values(got), values(want)) || got.Debug != want.Debug || got.Version != want.Version || got.Info != want.Info || got.Help != want.Help {
			t.Fatalf("%q: %+v, want %+v", args, got, want)
		}
	})
}
