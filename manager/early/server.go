package early

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Server says how `start` starts a server.
type Server struct {
	Path  string // of its program
	Argv0 string // whose name may pin a stage1
	// Cgroup, if set, makes the next child of the calling, locked thread start in a cgroup.
	Cgroup func(*syscall.SysProcAttr) error
	// Limit is how long the server may take until it reports; 0 is ReportLimit.
	Limit time.Duration
}

// ReportLimit is how long a server may take until it reports that it is ready: it reads the
// configuration and makes the data directory until then.
const ReportLimit = 30 * time.Second

// ready is the report of a server that is ready. Any other report is an error's text.
const ready = "ready\n"

// maxReport is how much is read of a report, in bytes.
const maxReport = 64 << 10

// Refusal is the error of a server that cannot serve. Another attempt would not help.
type Refusal struct {
	Text string
	Kept bool // the server has kept a record of the failed start
}

func (r *Refusal) Error() string { return r.Text }

// Start starts a server for a listener, and returns when it has reported that it is ready. After
// an error no server is left. The server shares only the log with the caller. It has a session of
// its own, and another working directory: the caller's is the bundle of one container, which may
// be deleted before the others of the pod.
func (s Server) Start(h *Handover, listener *os.File) error {
	report, err := s.start(h, listener)
	if err != nil {
		return err
	}
	return report.await()
}

func (s Server) start(h *Handover, listener *os.File) (*report, error) {
	handover, err := h.file()
	if err != nil {
		return nil, err
	}
	defer handover.Close()
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	defer unix.Close(null)
	output, closeOutput := openLog(h.Bundle, uintptr(null))
	defer closeOutput()
	var pipe [2]int
	// The Go runtime polls the reading end: a thread that blocks in read(2) would be watched.
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	defer unix.Close(pipe[1])
	r := &report{pipe: os.NewFile(uintptr(pipe[0]), "report"), limit: s.Limit}
	if r.limit == 0 {
		r.limit = ReportLimit
	}
	attr := &syscall.ProcAttr{
		Dir:   "/",
		Env:   serverEnv(os.Environ()),
		Files: []uintptr{uintptr(null), output, output, ListenerFD: listener.Fd(), HandoverFD: handover.Fd(), ReportFD: uintptr(pipe[1])},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}

	// The child inherits cookie and cgroup from the thread that forks it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = s.prepareThread(attr.Sys)
	if err == nil {
		// The first call of os.StartProcess forks once more, to try pidfds, so it is not used.
		r.pid, err = syscall.ForkExec(s.Path, serverArgs(s.Argv0, h), attr)
	}
	if attr.Sys.UseCgroupFD {
		unix.Close(attr.Sys.CgroupFD)
	}
	if err != nil {
		r.pipe.Close()
		return nil, err
	}
	return r, nil
}

// report is what a server is going to report.
type report struct {
	pipe  *os.File
	pid   int
	limit time.Duration
}

// await returns nil if the server reports that it is ready. Otherwise it ends the server.
func (r *report) await() error {
	defer r.pipe.Close()
	text, err := []byte(nil), r.pipe.SetReadDeadline(time.Now().Add(r.limit))
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(r.pipe, maxReport))
	}
	if err == nil && string(text) == ready {
		return nil
	}
	hangs := errors.Is(err, os.ErrDeadlineExceeded)
	// The process is not reaped, so the pid is still its own.
	_ = unix.Kill(r.pid, unix.SIGKILL)
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(r.pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	switch {
	case hangs:
		return &Refusal{Text: fmt.Sprintf("start server: it did not report within %s that it is ready", r.limit)}
	case err != nil:
		return fmt.Errorf("report of the server: %w", err)
	case len(text) > 0:
		return &Refusal{Text: string(text), Kept: true}
	case status.Signaled():
		return fmt.Errorf("it ended before it was ready: %v", status.Signal())
	default:
		return fmt.Errorf("it ended before it was ready, with exit code %d", status.ExitStatus())
	}
}

// Report tells `start`, which has started this process, that the server is ready, or an error.
// It reports whether `start` is still running. If it is not, no client learns of this server.
func Report(failure error) (heard bool) {
	text := ready
	if failure != nil {
		text = failure.Error()
		if len(text) > maxReport {
			text = strings.ToValidUTF8(text[:maxReport], "")
		}
	}
	for {
		_, err := unix.Write(ReportFD, []byte(text))
		if err == unix.EINTR {
			continue
		}
		unix.Close(ReportFD)
		return err == nil
	}
}

// serverArgs returns the arguments of the server. They are only for people who read ps, and for
// Owner.StartedFor: the server reads the handover.
func serverArgs(argv0 string, h *Handover) []string {
	args := []string{argv0, "-namespace", h.Namespace, "-id", h.ID, "-address", h.Address}
	if h.LogLevel == "debug" || h.LogLevel == "trace" {
		args = append(args, "-debug")
	}
	return args
}

// serverEnv returns the environment of a server. Go's runtime takes memory for each processor from
// its start on, and a server needs one (package manager, limitMemory). The number in env is that of
// containerd, which gives all shims the same.
func serverEnv(env []string) []string {
	isSet := func(e string) bool { return strings.HasPrefix(e, "GOMAXPROCS=") }
	return append(slices.DeleteFunc(env, isSet), "GOMAXPROCS=1")
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
func (s Server) prepareThread(sys *syscall.SysProcAttr) error {
	if err := raiseOOMScore(); err != nil {
		return err
	}
	if os.Getenv("SCHED_CORE") != "" {
		const processGroup = 2 // PIDTYPE_PGID
		if err := unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_CREATE, 0, processGroup, 0); err != nil {
			return fmt.Errorf("core scheduling (SCHED_CORE): %w", err)
		}
	}
	if s.Cgroup == nil {
		return nil
	}
	return s.Cgroup(sys)
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
