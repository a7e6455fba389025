package early

import (
	"bytes"
	"testing"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/ttrpc"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
)

// answer is the frame of a response.
func answer(t testing.TB, stream byte, code int32, payload proto.Message) []byte {
	r := &ttrpc.Response{Status: &status.Status{Code: code, Message: "x"}}
	if payload != nil {
		r.Payload = encoded(t, payload)
	}
	b := encoded(t, r)
	return append([]byte{0, 0, 0, byte(len(b)), 0, 0, 0, stream, frameResponse, 0}, b...)
}

// A container counts as gone only if its server says so.
func TestAnswersOfServersAreUnderstood(t *testing.T) {
	connected := answer(t, connectStream, 0, &task.ConnectResponse{ShimPid: 77, Version: "v"})
	has, hasNot, failed := answer(t, stateStream, 0, &task.StateResponse{ID: "c"}), answer(t, stateStream, 5, nil), answer(t, stateStream, 14, nil)
	for name, c := range map[string]struct {
		frames [][]byte
		want   Owner
		fails  bool
	}{
		"has it":                     {[][]byte{has}, Owner{Has: true}, false},
		"has it, the pid first":      {[][]byte{connected, has}, Owner{Has: true, PID: 77}, false},
		"has it not":                 {[][]byte{hasNot, connected}, Owner{HasNot: true, PID: 77}, false},
		"has it not, the pid first":  {[][]byte{connected, hasNot}, Owner{HasNot: true, PID: 77}, false},
		"cannot say":                 {[][]byte{failed, connected}, Owner{PID: 77}, false},
		"does not say its pid":       {[][]byte{hasNot}, Owner{}, true},
		"refuses to say its pid":     {[][]byte{hasNot, answer(t, connectStream, 14, nil)}, Owner{HasNot: true}, false},
		"refuses, and has it":        {[][]byte{answer(t, connectStream, 14, nil), has}, Owner{Has: true}, false},
		"answers what was not asked": {[][]byte{hasNot, answer(t, 5, 0, nil)}, Owner{}, true},
		"sends a request":            {[][]byte{appendCall(nil, 1, "State", "c", OwnerAnswerLimit)}, Owner{}, true},
		"sends too much":             {[][]byte{{0xff, 0, 0, 0, 0, 0, 0, 1, frameResponse, 0}}, Owner{}, true},
	} {
		o, err := readOwner(bytes.NewReader(bytes.Join(c.frames, nil)))
		if (err != nil) != c.fails || err == nil && o != c.want {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
}

func FuzzAnswersOfServers(f *testing.F) {
	f.Add(append(answer(f, stateStream, 5, nil), answer(f, connectStream, 0, &task.ConnectResponse{ShimPid: 77})...))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := readOwner(bytes.NewReader(b))
		if o.Has && o.HasNot || err == nil && !o.Has && bytes.Count(b, []byte{frameResponse}) < 2 {
			t.Errorf("%+v, %v", o, err)
		}
	})
}
