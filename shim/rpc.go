package shim

import (
	"context"
	"reflect"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/wire"
)

// The names of the Task service. Versions 2 and 3 have the same messages; only
// the protobuf package differs, which is not on the wire (requirements.md#N8).
const (
	serviceV2 = "containerd.task.v2.Task"
	serviceV3 = "containerd.task.v3.Task"
)

// empty is the answer of calls without results. It is never written to.
var empty = &emptypb.Empty{}

// methods is the Task service.
func (s *Service) methods() map[string]ttrpc.Method {
	return map[string]ttrpc.Method{
		"State":      rpc("State", s.state),
		"Create":     rpc("Create", s.create),
		"Start":      rpc("Start", s.start),
		"Delete":     rpc("Delete", s.delete),
		"Pids":       rpc("Pids", s.pids),
		"Pause":      rpc("Pause", s.pause),
		"Resume":     rpc("Resume", s.resume),
		"Checkpoint": rpc("Checkpoint", s.checkpoint),
		"Kill":       rpc("Kill", s.kill),
		"Exec":       rpc("Exec", s.exec),
		"ResizePty":  rpc("ResizePty", s.resizePty),
		"CloseIO":    rpc("CloseIO", s.closeIO),
		"Update":     rpc("Update", s.update),
		"Wait":       rpc("Wait", s.wait),
		"Stats":      rpc("Stats", s.stats),
		"Connect":    rpc("Connect", s.connect),
		"Shutdown":   rpc("Shutdown", s.shutdown),
	}
}

// rpc wraps a method: it decodes the request, calls the method, and turns its error into a
// gRPC status with the same text, because clients look for words in that text.
func rpc[Request, Response any](name string, call func(context.Context, *Request) (*Response, error)) ttrpc.Method {
	return func(ctx context.Context, unmarshal func(any) error) (any, error) {
		req := new(Request)
		packed := new(emptypb.Empty)
		if err := unmarshal(packed); err != nil {
			return nil, err
		}
		if err := wire.Unpack(packed, req); err != nil {
			return nil, status.Errorf(codes.Internal, "%s: %v", name, err)
		}
		resp, err := call(traced(ctx), req)
		if err != nil {
			about(ctx, req, err).Debugf("%s failed", name)
			return nil, errgrpc.ToGRPC(printable{err})
		}
		return wire.Pack(resp)
	}
}

// about returns the log for a line about an error of a call.
func about(ctx context.Context, req any, err error) *log.Entry {
	var app, exec string
	r := reflect.ValueOf(req).Elem()
	if id := r.FieldByName("ID"); id.IsValid() {
		app = id.String()
	}
	if id := r.FieldByName("ExecID"); id.IsValid() {
		exec = id.String()
	}
	return pod.Log(ctx, pod.AppID(app), pod.ExecID(exec), err)
}

// printable is an error whose text is safe to print, although parts of the text may come
// from a stage1, an image or a spec. It has the class of the error and none of its causes: errgrpc would send causes that
// stand beside each other, and each client of a client would append their texts once more. The text names system calls that
// are denied.
type printable struct{ error }

func (p printable) Error() string { return proc.ExplainDenied(abi.Printable(p.error.Error())) }
func (p printable) Unwrap() error { return errdefs.Resolve(p.error) }
