package manager

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Descriptors that a server inherits. Its descriptors 1 and 2 are the log.
const (
	listenerFD  = 3
	bootstrapFD = 4
)

// spawn starts the server that serves listener. The server shares only the log with the
// caller. It has a session of its own, and another working directory: the caller's is
// the bundle of one container, which may be deleted before the others of the pod.
func spawn(argv0, bundle string, r *request, listener *os.File) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	handover, err := writeHandover(&r.Bootstrap)
	if err != nil {
		return err
	}
	defer handover.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	output, closeOutput := openLog(bundle, null.Fd())
	defer closeOutput()
	attr := &syscall.ProcAttr{
		Dir:   "/",
		Env:   serverEnv(os.Environ()),
		Files: []uintptr{null.Fd(), output, output, listenerFD: listener.Fd(), bootstrapFD: handover.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}

	// The child inherits cookie and cgroup from the thread that forks it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := prepareThread(r.cgroup, attr.Sys); err != nil {
		return err
	}
	// The first call of os.StartProcess forks once more, to try pidfds, so it is not used.
	_, err = syscall.ForkExec(self, serverArgs(argv0, &r.Bootstrap), attr)
	if attr.Sys.UseCgroupFD {
		unix.Close(attr.Sys.CgroupFD)
	}
	return err
}

// serverArgs returns the arguments of the server. They are only for people who read ps:
// the server reads the handover.
func serverArgs(argv0 string, b *Bootstrap) []string {
	args := []string{argv0, "-namespace", b.Namespace, "-id", b.ID, "-address", b.Address}
	if b.LogLevel == "debug" || b.LogLevel == "trace" {
		args = append(args, "-debug")
	}
	return args
}

// serverEnv returns the environment with at most two processors for the Go runtime,
// which needs memory for each of them.
func serverEnv(env []string) []string {
	isSet := func(e string) bool { return strings.HasPrefix(e, "GOMAXPROCS=") }
	if slices.ContainsFunc(env, isSet) {
		return env
	}
	return append(env, "GOMAXPROCS=2")
}

// writeHandover writes the bootstrap to a file without a name.
func writeHandover(b *Bootstrap) (*os.File, error) {
	text, err := plainjson.Encode(b)
	if err != nil {
		return nil, err
	}
	return proc.Memory("bootstrap", text)
}

// openLog opens the log fifo of the bundle, and returns its descriptor, or the value of
// instead if that fails. The fifo is opened for reading and writing: this works without a
// reader, keeps lines for a containerd that restarts, and prevents SIGPIPE.
func openLog(bundle string, instead uintptr) (fd uintptr, release func()) {
	log, err := unix.Open(filepath.Join(bundle, "log"), unix.O_RDWR|unix.O_APPEND|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return instead, func() {}
	}
	return uintptr(log), func() { unix.Close(log) }
}

// prepareThread gives the calling, locked thread the OOM score, the core scheduling
// cookie and the cgroup that the next child is to have, or sets them in sys.
func prepareThread(cgroup string, sys *syscall.SysProcAttr) error {
	if err := raiseOOMScore(); err != nil {
		return err
	}
	if os.Getenv("SCHED_CORE") != "" {
		const processGroup = 2 // PIDTYPE_PGID
		if err := unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_CREATE, 0, processGroup, 0); err != nil {
			return fmt.Errorf("core scheduling (SCHED_CORE): %w", err)
		}
	}
	if cgroup == "" {
		return nil
	}
	if err := joinCgroup(cgroup, sys); err != nil {
		return fmt.Errorf("shim cgroup %s: %w", cgroup, err)
	}
	return nil
}

// raiseOOMScore raises the OOM score of this process, which the server inherits, above
// that of containerd.
func raiseOOMScore() error {
	const path, highest = "/proc/self/oom_score_adj", 1000
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	score, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	err = os.WriteFile(path, []byte(strconv.Itoa(min(score+1, highest))), 0)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}
