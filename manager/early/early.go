package early

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// lockLimit is how long an early `delete` waits for locks: for that of a pod that its server is
// removing, and for that of a group, which a `start` may hold. Then package manager waits for
// the rest of its own time, which begins anew: all must end before containerd kills `delete`.
const lockLimit = 250 * time.Millisecond

// Front is the program that containerd executes.
type Front struct {
	// Records are the names of the files and directories that the shim has in the bundle of a
	// container that was not deleted.
	Records []string
	// Await waits until no server is removing the pod of a container that has records. Its
	// error is ignored.
	Await func(ctx context.Context, bundle string) error
	// Server returns the path of the server program.
	Server func() (string, error)
	// ReportLimit is that of Server.Limit.
	ReportLimit time.Duration
}

// Main answers a call or, if that is not one of those that this package answers, makes the server
// program of this process. It returns the exit code of the process.
func (f *Front) Main(argv []string) int {
	answered, err := f.Answered(argv, os.Stdin, os.Stdout)
	if answered {
		return 0
	}
	if err == nil {
		err = f.become(argv)
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", filepath.Base(argv[0]), proc.ExplainDenied(err.Error()))
	return 1
}

// become executes the server program with everything that this process has: arguments, environment,
// standard input. It returns only if that fails.
//
// If there is no server program because another release has replaced this program since it was
// executed, become executes the program in its place.
func (f *Front) become(argv []string) error {
	path, err := f.Server()
	if err != nil {
		if path = replacement(); path == "" {
			return err
		}
	}
	err = syscall.Exec(path, argv, os.Environ())
	return fmt.Errorf("execute %s: %w", path, err)
}

// Answered answers a call of this program if it is one of those that the package answers, and
// reports whether it did. If it did not, and there is no error, stdin can be read again, and the
// server program repeats all that was done.
//
// The error is one that the server program could not change.
func (f *Front) Answered(argv []string, stdin, stdout *os.File) (bool, error) {
	fl, err := ParseFlags(argv[1:])
	if err != nil || fl.Help || fl.Version || fl.Info || fl.Check() != nil || os.Geteuid() != 0 {
		return false, nil
	}
	switch fl.Action {
	case "start":
		return f.started(argv[0], fl, stdin, stdout)
	case "delete":
		return f.foundNothing(fl, stdout), nil
	default:
		return false, nil
	}
}

// started answers a `start` without options.
func (f *Front) started(argv0 string, fl *Flags, stdin, stdout *os.File) (bool, error) {
	input, err := ReadStdin(stdin)
	if err != nil {
		return false, err
	}
	answered, err := f.start(argv0, fl, input, stdout)
	if answered || err != nil || len(input) == 0 {
		return answered, err
	}
	again, err := proc.Memory("stdin", input)
	if err == nil {
		defer again.Close()
		err = unix.Dup3(int(again.Fd()), int(stdin.Fd()), 0)
	}
	return false, err
}

func (f *Front) start(argv0 string, fl *Flags, input []byte, stdout *os.File) (bool, error) {
	r, err := ParseRequest(input, fl, os.Getenv)
	if err != nil || len(r.Extensions) > 0 {
		return false, nil
	}
	bundle, err := fl.BundleDir()
	if err != nil {
		return false, nil
	}
	annotations, err := AnnotationsOf(bundle)
	if err != nil {
		return false, nil
	}
	h := r.Handover(bundle, annotations)
	if h.Group, err = GroupOf(annotations, r.ID); err != nil {
		return false, nil
	}
	if h.Socket, err = SocketPath(r.SocketDir, r.Address, r.Namespace, h.Group); err != nil {
		return false, nil
	}
	if r.RecordSocket(bundle, h.Socket) != nil {
		return false, nil
	}
	c, err := ClaimSocket(h.Socket)
	if err != nil {
		return false, nil
	}
	if c.Listener != nil {
		if err := f.serveNew(argv0, h, c.Listener); err != nil {
			c.Undo()
			var refusal *Refusal
			if errors.As(err, &refusal) {
				return false, err
			}
			return false, nil
		}
	}
	c.Release()
	_, err = stdout.Write(r.Answer(h.Socket))
	return err == nil, nil
}

// serveNew starts the server of a pod that has none.
func (f *Front) serveNew(argv0 string, h *Handover, listener *os.File) error {
	path, err := f.Server()
	if err != nil {
		return err
	}
	// Descriptors that containerd left open must not stay open in the server.
	proc.SealDescriptors()
	return Server{Path: path, Argv0: argv0, Limit: f.ReportLimit}.Start(h, listener)
}

// foundNothing answers a `delete` if no record of the container is left and its server, if
// there is one, does not have it.
func (f *Front) foundNothing(fl *Flags, stdout *os.File) bool {
	ctx, cancel := context.WithTimeoutCause(context.Background(), lockLimit, fmt.Errorf("not done after %s", lockLimit))
	defer cancel()
	bundle, err := fl.BundleDir()
	if err != nil {
		return false
	}
	if f.hasRecord(bundle) {
		_ = f.Await(ctx, bundle)
		if f.hasRecord(bundle) {
			return false
		}
	}
	socket := SocketOf(bundle, fl)
	if IsCalledFrom(bundle) {
		owner, err := AskOwner(socket, fl.ID, OwnerAnswerLimit)
		switch {
		case errors.Is(err, ErrNoServer):
		case err != nil || !owner.HasNot || owner.PID == 0 || owner.StartedFor(fl.ID):
			return false
		default:
			return Exit{}.Write(stdout) == nil // its socket is not stale
		}
	}
	return RemoveStaleSocket(ctx, socket) == nil && Exit{}.Write(stdout) == nil
}

// hasRecord reports whether there may be a record in a bundle.
func (f *Front) hasRecord(bundle string) bool {
	for _, name := range f.Records {
		if _, err := os.Lstat(filepath.Join(bundle, name)); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}
