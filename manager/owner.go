package manager

import (
	"context"
	"net"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
)

const (
	// ownerPatience is how long a server may think about whether it has a
	// container, which it answers from memory.
	ownerPatience = 500 * time.Millisecond
	// ownerBudget is how long it may take to remove it. The rest of deleteBudget
	// is for doing it without the server.
	ownerBudget = 1500 * time.Millisecond
)

// askOwner has the server at a socket remove the container, if one answers and
// still has it: containerd gave up on a server that lives, and two must not take
// the same app apart. It returns nil if there is nobody to do so.
func askOwner(ctx context.Context, path, id string) *Exit {
	ctx, cancel := context.WithTimeout(ctx, ownerBudget)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	server := task.NewTTRPCTaskClient(client)
	if !hasContainer(ctx, server, id) {
		return nil
	}
	// Not to kill is an answer, too: it may have ended just now.
	_, _ = server.Kill(ctx, &task.KillRequest{ID: id, Signal: uint32(unix.SIGKILL), All: true})
	if _, err := server.Wait(ctx, &task.WaitRequest{ID: id}); err != nil {
		return nil
	}
	deleted, err := server.Delete(ctx, &task.DeleteRequest{ID: id})
	if err != nil {
		return nil
	}
	// containerd is not going to say this any more. With other containers in the
	// pod it means nothing.
	_, _ = server.Shutdown(ctx, &task.ShutdownRequest{ID: id})
	return &Exit{PID: deleted.GetPid(), Status: deleted.GetExitStatus(), At: deleted.GetExitedAt().AsTime()}
}

func hasContainer(ctx context.Context, server task.TTRPCTaskService, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, ownerPatience)
	defer cancel()
	_, err := server.State(ctx, &task.StateRequest{ID: id})
	return err == nil
}
