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
	// ownerAnswerLimit is how long a server may think about whether it has a
	// container, which it answers from memory.
	ownerAnswerLimit = 500 * time.Millisecond
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
		shutdownUnused(ctx, server, id)
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

// shutdownUnused ends a server that was started for a container which was never created,
// because containerd died after calling `start`: it does not know of the server,
// and is giving up the container now. A server that has, or gets, other containers
// stays.
func shutdownUnused(ctx context.Context, server task.TTRPCTaskService, id string) {
	ctx, cancel := context.WithTimeout(ctx, ownerAnswerLimit)
	defer cancel()
	r, err := server.Connect(ctx, &task.ConnectRequest{ID: id})
	if err != nil || !startedFor(r.GetShimPid(), id) {
		return
	}
	_, _ = server.Shutdown(ctx, &task.ShutdownRequest{ID: id}) // or it ends by itself, later
}

// startedFor tells whether a server is that of this container's `start`.
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
