package manager

import (
	"context"
	"net"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
)

// ownerBudget is how long the server may take to remove the container. The rest
// of deleteBudget is for removing it without the server.
const ownerBudget = 1500 * time.Millisecond

// askOwner asks the server at a socket to remove the container. containerd also calls
// `delete` if it has given up on a server that is still running, and two processes must
// not remove one app at the same time. askOwner returns nil if no server answers or the
// server does not have the container.
//
// A server whose container was never created, because containerd ended after it had called
// `start`, is ended: after its restart containerd does not know of the server. A server that
// has other containers does not end.
func askOwner(ctx context.Context, path, id string) *Exit {
	ctx, cancel := context.WithTimeout(ctx, ownerBudget)
	defer cancel()
	owner, err := early.AskOwner(path, id)
	if err != nil || !owner.Has && !owner.StartedFor(id) {
		return nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	server := task.NewTTRPCTaskClient(client)
	var exit *Exit
	if owner.Has {
		// The error is ignored, because the container may just have ended.
		_, _ = server.Kill(ctx, &task.KillRequest{ID: id, Signal: uint32(unix.SIGKILL), All: true})
		if _, err := server.Wait(ctx, &task.WaitRequest{ID: id}); err != nil {
			return nil
		}
		deleted, err := server.Delete(ctx, &task.DeleteRequest{ID: id})
		if err != nil {
			return nil
		}
		exit = &Exit{PID: deleted.GetPid(), Status: deleted.GetExitStatus(), At: deleted.GetExitedAt().AsTime()}
	}
	// containerd sends no Shutdown after it gave up on this server, so send it here. It
	// is a no-op while the pod has other containers. Without it an unused server would end
	// after unusedLimit.
	_, _ = server.Shutdown(ctx, &task.ShutdownRequest{ID: id})
	return exit
}
