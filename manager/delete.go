package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

const (
	// deleteBudget is the time for all that `delete` does. containerd kills it after
	// five seconds, and an answer has to be out before.
	deleteBudget = 3500 * time.Millisecond
	// reportBudget is how long, beyond that, `delete` waits for a collector that knows the
	// deadline and is about to say what it hangs on.
	reportBudget = deleteBudget / 10
	// finishBudget is the time for what `delete` leaves to a process that it does not
	// wait for. It is more than the ABI gives to stop, stop --force and gc together.
	finishBudget = time.Minute
)

// Exit is how an app's first process ended.
type Exit struct {
	PID    uint32 // 0 if unknown
	Status uint32
	At     time.Time // zero if no end was recorded: then Status means nothing
	// Rest is what Finish of the Collector that has returned this is to be called
	// with; nothing if it is empty.
	Rest string
}

// Collector removes what is left of an app.
type Collector interface {
	// Collect kills the processes of the app that the bundle belongs to, undoes
	// its mounts and forgets it, and its pod with the last app, from disk alone.
	// It returns how the app ended, the recorded end if there is one. It is
	// idempotent and silent: nothing left is no error, and an Exit without At.
	// It touches no other app, and it is called while the pod's server lives,
	// after every ordinary Delete.
	//
	// An Exit with a Rest says that there is work left which takes longer than ctx, with
	// an error, or if nothing is left of the container itself without one.
	Collect(ctx context.Context, bundle, namespace, id string) (Exit, error)
	// Finish does that work. It may be called in another process, and after the
	// bundle was removed.
	Finish(ctx context.Context, rest string) error
}

// delete cleans up after a container whose connection has gone, and writes a
// DeleteResponse and nothing else. containerd calls it after a crash of the
// server and after each ordinary Delete alike.
func (p *Program) delete(ctx context.Context, argv0 string, f *flags, stdout io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, deleteBudget, fmt.Errorf("not done after %s", deleteBudget))
	defer cancel()
	bundle, err := f.bundleDir()
	if err != nil {
		return err
	}
	socket := socketOf(bundle, f)
	var exit *Exit
	if isCalledFrom(bundle) {
		exit = askOwner(ctx, socket, f.id)
	}
	collected, err := p.collect(ctx, argv0, bundle, f)
	if collected.Rest != "" {
		err = errors.Join(err, finishInChild(argv0, bundle, f, collected.Rest))
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", f.id, err)
	}
	if exit == nil {
		exit = &collected
	}
	if err := removeStaleSocket(ctx, socket); err != nil {
		return fmt.Errorf("delete %s: socket: %w", f.id, err)
	}
	return writeExit(stdout, *exit)
}

// isCalledFrom tells whether the bundle is still the directory that containerd
// called this program in. If it is another one by now, the server's container of
// that id is not ours to delete.
func isCalledFrom(bundle string) bool {
	cwd, err := os.Stat(".")
	if err != nil {
		return false
	}
	named, err := os.Stat(bundle)
	return err == nil && os.SameFile(cwd, named)
}

// collect holds the collector to the budget, whatever hangs: containerd has to be
// told.
func (p *Program) collect(ctx context.Context, argv0, bundle string, f *flags) (Exit, error) {
	if p.Collector == nil {
		return Exit{}, nil
	}
	if hasMounts(bundle) {
		return collectInChild(ctx, argv0, bundle, f)
	}
	type result struct {
		exit Exit
		err  error
	}
	done := make(chan result, 1)
	go func() {
		exit, err := p.Collector.Collect(ctx, bundle, f.namespace, f.id)
		done <- result{exit, err}
	}()
	select {
	case r := <-done:
		return r.exit, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done:
		return r.exit, r.err
	case <-time.After(reportBudget):
		return Exit{}, context.Cause(ctx)
	}
}

func writeExit(w io.Writer, e Exit) error {
	if e.At.IsZero() {
		e.Status, e.At = uint32(proc.KilledCode), time.Now()
	}
	response, err := proto.Marshal(&task.DeleteResponse{
		Pid:        e.PID,
		ExitStatus: e.Status,
		ExitedAt:   timestamppb.New(e.At),
	})
	if err != nil {
		return err
	}
	_, err = w.Write(response)
	return err
}

// socketOf returns the path on which the container's server listens, or did: what
// containerd stored, what `start` left for the older ones, and if it came to
// neither, what `start` must have computed.
func socketOf(bundle string, f *flags) string {
	if path := storedSocket(bundle); path != "" {
		return path
	}
	dir, err := os.Readlink(filepath.Join(bundle, socketDirLink))
	if err != nil {
		dir = defaultSocketDir
	}
	// Of a config.json that cannot be read there was no group either.
	annotations, _ := readAnnotations(filepath.Join(bundle, "config.json"))
	group, err := groupOf(annotations, f.id)
	if err != nil {
		group = f.id
	}
	path, err := socketPath(dir, f.address, f.namespace, group)
	if err != nil {
		return ""
	}
	return path
}

// storedSocket returns nothing for an answer that is not there or not ours.
func storedSocket(bundle string) string {
	if text, err := os.ReadFile(filepath.Join(bundle, "bootstrap.json")); err == nil {
		var stored struct {
			Address string `json:"address"`
		}
		if json.Unmarshal(text, &stored) == nil {
			return pathOf(stored.Address)
		}
	}
	text, err := os.ReadFile(filepath.Join(bundle, addressFile))
	if err != nil {
		return ""
	}
	return pathOf(string(text))
}
