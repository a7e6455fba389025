package manager

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
	"github.com/rkt/containerd-shim-rkt-v1/wire"
	"github.com/rkt/containerd-shim-rkt-v1/wire/task"
)

// taskService is the name of the Task service that every server has.
const taskService = "containerd.task.v2.Task"

const (
	// ownerBudget is how long the server may take to remove the container, after it has
	// answered. The rest of deleteBudget is for removing it without the server.
	ownerBudget = time.Second
	// hangsAfter is how long a server that containerd has given up on may take to answer,
	// before it is killed. The rest of finishBudget is for removing the pod.
	hangsAfter = finishBudget * 2 / 3
)

// askOwner asks the server at a socket to remove the container. containerd also calls
// `delete` if it has given up on a server that is still running, and two processes must
// not remove one app at the same time. askOwner returns no exit if no server answers or the
// server does not have the container. answered is false if there is a server that has not said within
// limit whether it has the container.
//
// A server whose container was never created, because containerd ended after it had called
// `start`, is ended: after its restart containerd does not know of the server. A server that
// has other containers does not end.
func askOwner(ctx context.Context, path, id string, limit time.Duration) (exit *Exit, answered bool) {
	owner, err := early.AskOwner(path, id, limit)
	if err != nil || !owner.Has && !owner.StartedFor(id) {
		return nil, !errors.Is(err, os.ErrDeadlineExceeded)
	}
	ctx, cancel := context.WithTimeout(ctx, ownerBudget)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, true
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	call := func(method string, request, response any) error {
		return wire.Call(ctx, client, taskService, method, request, response)
	}
	if owner.Has {
		// The error is ignored, because the container may just have ended.
		_ = call("Kill", &task.KillRequest{ID: id, Signal: uint32(unix.SIGKILL), All: true}, &struct{}{})
		if err := call("Wait", &task.WaitRequest{ID: id}, &task.WaitResponse{}); err != nil {
			return nil, true
		}
		var deleted task.DeleteResponse
		if err := call("Delete", &task.DeleteRequest{ID: id}, &deleted); err != nil {
			return nil, true
		}
		exit = &Exit{PID: deleted.Pid, Status: deleted.ExitStatus, At: deleted.ExitedAt.AsTime()}
	}
	// containerd sends no Shutdown after it gave up on this server, so send it here. It
	// is a no-op while the pod has other containers. Without it an unused server would end
	// after unusedLimit.
	_ = call("Shutdown", &task.ShutdownRequest{ID: id}, &struct{}{})
	return exit, true
}
