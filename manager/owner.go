package manager

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
)

const (
	// ownerAnswerLimit is how long a server may take to say whether it has a container.
	// The server answers from memory.
	ownerAnswerLimit = 500 * time.Millisecond
	// ownerBudget is how long the server may take to remove the container. The rest
	// of deleteBudget is for removing it without the server.
	ownerBudget = 1500 * time.Millisecond
)

// askOwner asks the server at a socket to remove the container. containerd also calls
// `delete` if it has given up on a server that is still running, and two processes must
// not remove one app at the same time. askOwner returns nil if no server answers or the
// server does not have the container.
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
		shutdownUnused(ctx, server, id)
		return nil
	}
	// The error is ignored, because the container may just have ended.
	_, _ = server.Kill(ctx, &task.KillRequest{ID: id, Signal: uint32(unix.SIGKILL), All: true})
	if _, err := server.Wait(ctx, &task.WaitRequest{ID: id}); err != nil {
		return nil
	}
	deleted, err := server.Delete(ctx, &task.DeleteRequest{ID: id})
	if err != nil {
		return nil
	}
	// containerd sends no Shutdown after it gave up on this server, so send it here. It
	// is a no-op while the pod has other containers.
	_, _ = server.Shutdown(ctx, &task.ShutdownRequest{ID: id})
	return &Exit{PID: deleted.GetPid(), Status: deleted.GetExitStatus(), At: deleted.GetExitedAt().AsTime()}
}

// shutdownUnused ends a server whose container was never created, because containerd ended
// after it had called `start`. After its restart containerd does not know of the server.
// A server that has other containers does not end.
func shutdownUnused(ctx context.Context, server task.TTRPCTaskService, id string) {
	ctx, cancel := context.WithTimeout(ctx, ownerAnswerLimit)
	defer cancel()
	r, err := server.Connect(ctx, &task.ConnectRequest{ID: id})
	if err != nil || !startedFor(r.GetShimPid(), id) {
		return
	}
	_, _ = server.Shutdown(ctx, &task.ShutdownRequest{ID: id}) // without Shutdown the server would end after unusedLimit
}

// startedFor reports whether the process was started by the `start` of this container.
func startedFor(pid uint32, id string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args := strings.Split(string(line), "\x00")
	i := slices.Index(args, "-id") + 1
	return err == nil && i > 0 && i < len(args) && args[i] == id
}

func hasContainer(ctx context.Context, server task.TTRPCTaskService, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, ownerAnswerLimit)
	defer cancel()
	_, err := server.State(ctx, &task.StateRequest{ID: id})
	return err == nil
}
