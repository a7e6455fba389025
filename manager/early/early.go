package early

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	filepath "path" // path/filepath is initialised late
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// lockLimit is how long an early `delete` waits for locks: for that of a pod that its server is
// removing, and for that of a group, which a `start` may hold. Then package manager waits for
// the rest of its own time, which begins anew: all must end before containerd kills `delete`.
const lockLimit = 250 * time.Millisecond

// Bundle says what early answers need to know of bundles.
type Bundle struct {
	// Records are the names of the files and directories that the shim has in the bundle of a
	// container that was not deleted.
	Records []string
	// Await waits until no server is removing the pod of a container that has records. Its
	// error is ignored.
	Await func(ctx context.Context, bundle string) error
}

// has reports whether there may be a record in a bundle.
func (b Bundle) has(bundle string) bool {
	for _, name := range b.Records {
		if _, err := os.Lstat(filepath.Join(bundle, name)); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// Answered answers a call of this program if it is one of those that the package answers, and
// reports whether it did. If it did not, stdin can be read again, and package manager repeats
// all that was done.
//
// The error means that stdin cannot be read again.
func Answered(argv []string, stdin, stdout *os.File, b Bundle) (bool, error) {
	f, err := ParseFlags(argv[1:])
	if err != nil || f.Help || f.Version || f.Info || f.Check() != nil || os.Geteuid() != 0 {
		return false, nil
	}
	switch f.Action {
	case "start":
		return joined(f, stdin, stdout)
	case "delete":
		return foundNothing(f, stdout, b), nil
	default:
		return false, nil
	}
}

// joined answers a `start` without options, if a server listens for the group.
func joined(f *Flags, stdin, stdout *os.File) (bool, error) {
	input, err := ReadStdin(stdin)
	if err != nil {
		return false, err
	}
	if join(f, input, stdout) {
		return true, nil
	}
	if len(input) == 0 {
		return false, nil
	}
	again, err := proc.Memory("stdin", input)
	if err == nil {
		defer again.Close()
		err = unix.Dup3(int(again.Fd()), int(stdin.Fd()), 0)
	}
	return false, err
}

func join(f *Flags, input []byte, stdout *os.File) bool {
	r, err := ParseRequest(input, f, os.Getenv)
	if err != nil || len(r.Extensions) > 0 {
		return false
	}
	bundle, err := f.BundleDir()
	if err != nil {
		return false
	}
	annotations, err := AnnotationsOf(bundle)
	if err != nil {
		return false
	}
	group, err := GroupOf(annotations, r.ID)
	if err != nil {
		return false
	}
	socket, err := SocketPath(r.SocketDir, r.Address, r.Namespace, group)
	if err != nil || !exists(socket) || r.RecordSocket(bundle, socket) != nil || !serves(socket) {
		return false
	}
	answer, err := r.Answer(AddressPrefix + socket)
	if err == nil {
		_, err = stdout.Write(answer)
	}
	return err == nil
}

// serves reports whether a server listens on a socket. Another `start` may be about to start
// that server, or to give up, so serves waits for the group's lock.
func serves(socket string) bool {
	lock, err := LockGroup(context.Background(), socket)
	if err != nil {
		return false
	}
	defer lock.Release()
	return Probe(socket) == nil
}

// foundNothing answers a `delete` if no record of the container is left and its server, if
// there is one, does not have it.
func foundNothing(f *Flags, stdout *os.File, b Bundle) bool {
	ctx, cancel := context.WithTimeoutCause(context.Background(), lockLimit, fmt.Errorf("not done after %s", lockLimit))
	defer cancel()
	bundle, err := f.BundleDir()
	if err != nil {
		return false
	}
	if b.has(bundle) {
		_ = b.Await(ctx, bundle)
		if b.has(bundle) {
			return false
		}
	}
	socket := SocketOf(bundle, f)
	if IsCalledFrom(bundle) {
		owner, err := AskOwner(socket, f.ID)
		switch {
		case errors.Is(err, ErrNoServer):
		case err != nil || !owner.HasNot || owner.PID == 0 || owner.StartedFor(f.ID):
			return false
		default:
			return Exit{}.Write(stdout) == nil // its socket is not stale
		}
	}
	return RemoveStaleSocket(ctx, socket) == nil && Exit{}.Write(stdout) == nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
