package stage1

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/console"
)

// killLimit is how long a process may take to end after SIGKILL. A process that takes
// longer hangs in the kernel, and is left alone.
const killLimit = 5 * time.Second

// Call is one call of an entrypoint: an execution, or a message on the stage1's socket. One
// goroutine calls its methods:
//
//	Start ─► AwaitReady, awaitEnd ─► Release ─► Leave     success
//	      └─────────┴─────────────► Fail                  anything else
type Call struct {
	Stage1     *Stage1
	Entrypoint abi.Entrypoint
	pod.Call
	Args  []string    // after argv[0]
	Stdio [3]*os.File // of app/add and enter; nil is /dev/null
	Lock  *os.File    // of run

	answer *os.File // write end of the pipe for what Ask returns; nil for other calls

	Interactive bool // of run: the app reads the streams that it inherits

	parent  string // span of the client's call, or ""; while it is set, the next entry of the journal has the call's trace
	Began   time.Time
	Child   *proc.Child   // nil if the call was made on the stage1's socket
	asked   *asked        // nil if the entrypoint was executed
	Ended   chan struct{} // closed when the call has ended; its child is not reaped yet
	Exit    abi.Status    // set before Ended is closed
	verdict chan bool     // whether to kill the processes that the child leaves in its process group

	words   *proc.Tail // the end of the text from the error pipe
	ready   *os.File   // read ends of the pipes
	notices *os.File
	console *console.Socket
	files   []string   // removed when the call ends
	memory  []*os.File // documents for which the disk had no room
}

// Start makes the call on the stage1's socket, or executes the entrypoint.
func (k *Call) Start() error {
	if ok, err := k.ask(); ok || err != nil {
		return err
	}
	env, err := k.Stage1.Dialect.Environment(k)
	if err != nil {
		return err
	}
	argv := append([]string{k.Stage1.EntrypointIn(k.Dir, k.Entrypoint)}, k.Args...)
	if show := k.Stage1.Show; show != nil {
		show(k.Entrypoint, argv, env, nil)
	}
	return k.Execute(argv, env, &syscall.SysProcAttr{Setpgid: true})
}

// Execute starts a program with the descriptors of the call. The files in more follow after
// the last descriptor of the ABI.
func (k *Call) Execute(argv, env []string, sys *syscall.SysProcAttr, more ...*os.File) error {
	var fds descriptors
	defer fds.close()
	if err := k.open(&fds); err != nil {
		return err
	}
	files := fds.files()
	if len(more) > 0 {
		files = append(fds.table[:], more...)
	}
	attr := &os.ProcAttr{Dir: k.Dir, Env: env, Files: files, Sys: sys}
	return k.Stage1.within(k.Entrypoint, func() (err error) {
		k.Child, err = k.Stage1.Children.StartThen(argv, attr, k.end)
		if errors.Is(err, syscall.ELOOP) {
			// The data directory is mounted nosymfollow, so the kernel executes no links, and many entrypoints are links to
			// one program.
			if path, linkErr := filepath.EvalSymlinks(argv[0]); linkErr == nil {
				k.Child, err = k.Stage1.Children.StartFile(path, argv, attr, k.end)
			}
		}
		if err != nil {
			return ExplainExec(argv[0], err)
		}
		return nil
	})
}

// end is called when the child has ended, on a goroutine of its own. The child stays a
// zombie until it is known whether the call has failed, because until then no other process
// group can get its number.
func (k *Call) end(child *proc.Child, exit proc.Exit) {
	k.Exit = abi.Status(exit)
	close(k.Ended)
	if <-k.verdict {
		_ = child.KillGroup()
	}
}

// create starts a call that makes a process and waits until the process is ready. If the
// call has a terminal, its master has arrived by then.
func (k *Call) create(ctx context.Context) (abi.Ready, error) {
	if k.Request.Terminal {
		c, err := k.listen()
		if err != nil {
			return abi.Ready{}, err
		}
		k.console = c
		k.Request.ConsoleSocket = c.Path
	}
	if err := k.Start(); err != nil {
		return abi.Ready{}, err
	}
	ready, err := k.AwaitReady(ctx)
	if err != nil || k.console == nil {
		return ready, err
	}
	return ready, k.console.Await(ctx)
}

// listen makes the console socket in the pod's directory or, if that disk is full, read-only or broken, in the
// bundle: a client's is below /run, and goes with the container.
func (k *Call) listen() (*console.Socket, error) {
	c, err := console.Listen(k.Dir)
	if err == nil || k.Request.Bundle == "" || errors.Is(err, fs.ErrNotExist) { // a pod that is gone needs no call
		return c, err
	}
	c, bundleErr := console.Listen(k.Request.Bundle)
	if bundleErr != nil {
		return nil, errors.Join(err, bundleErr)
	}
	return c, nil
}

// errDeadline is the cause of a context that the call's own deadline has ended.
var errDeadline = errors.New("deadline of the entrypoint")

// Limit returns a context that ends with the deadline of the call.
func (k *Call) Limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(ctx, k.Began.Add(k.Stage1.Limit(k.Entrypoint)), errDeadline)
}

// ErrEnded says that the call has ended without success. Fail finds the reason.
var ErrEnded = errors.New("the entrypoint has ended")

// awaitEnd waits for the call to return, and kills it at its deadline.
func (k *Call) awaitEnd(ctx context.Context) error {
	ctx, cancel := k.Limit(ctx)
	defer cancel()
	select {
	case <-k.Ended:
	case <-ctx.Done():
		if !closed(k.Ended) { // what has succeeded is not undone
			return k.Hung(ctx)
		}
	}
	if k.Exit.Code != 0 {
		return ErrEnded
	}
	return nil
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Hung kills a call that did not answer in time, with all processes that it has started. It
// returns the error.
func (k *Call) Hung(ctx context.Context) error {
	where := ""
	if k.Stage1.Stuck != nil {
		where = k.Stage1.Stuck()
	}
	how := k.giveUp() + where
	if cause := context.Cause(ctx); !errors.Is(cause, errDeadline) {
		return fmt.Errorf("given up after %s: %w; %s", round(time.Since(k.Began)), cause, how)
	}
	return &hungError{fmt.Sprintf("no answer within %s%s; %s; see %s", k.Stage1.Limit(k.Entrypoint), proc.Busy(), how, journal.Path(k.Dir))}
}

// hungError says that the deadline of a call has passed.
type hungError struct{ text string }

func (e *hungError) Error() string { return e.text }
func (e *hungError) Unwrap() error { return context.DeadlineExceeded }

// giveUp ends a call that did not answer, and describes how it has done so.
func (k *Call) giveUp() string {
	switch {
	case k.asked != nil:
		k.hangUp()
		return "the stage1 was told to undo the call"
	case !k.Kill():
		return fmt.Sprintf("the entrypoint was killed, but process %d hangs in the kernel", k.Child.PID())
	}
	return "the entrypoint was killed"
}

// Kill ends the process group of an execution, and reports whether its leader has ended.
func (k *Call) Kill() bool {
	_ = k.Child.KillGroup()
	limit := time.NewTimer(killLimit)
	defer limit.Stop()
	select {
	case <-k.Ended:
		return true
	case <-limit.C:
		return false
	}
}

// process describes the process that the call has reported.
func (k *Call) process(ready abi.Ready, recorder pod.Recorder) *pod.Process {
	p := &pod.Process{PID: ready.PID, StartTime: ready.StartTime, Recorder: recorder}
	if k.console != nil {
		p.Console = k.console.Take()
	}
	return p
}

func (k *Call) takeNotices() *os.File {
	n := k.notices
	k.notices = nil
	return n
}

// Release ends stage 0's part in a call that has succeeded, whether the call has returned
// or stays.
func (k *Call) Release() {
	k.verdict <- false
	k.close()
}

// close removes the files of the call and closes its descriptors.
func (k *Call) close() {
	for _, f := range k.files {
		_ = os.Remove(f)
	}
	proc.CloseFiles(append(k.memory, k.ready, k.notices)...)
	if k.console != nil {
		k.console.Close()
	}
}

// Leave waits for the end of a released call and writes it to the journal.
func (k *Call) Leave() {
	if k.asked != nil {
		<-k.Ended
		k.record(k.asked.words)
		return
	}
	<-k.Child.Done()
	k.record(k.Said())
}

// Fail ends a call that did not succeed, and all its processes. It returns the error for
// the client, and writes it to the journal.
func (k *Call) Fail(err error) error {
	e := &EntrypointError{Stage1: k.Stage1.name, Pod: k.Request.Pod, Entrypoint: k.Entrypoint, Code: -1}
	words := k.abandon()
	if errors.Is(err, ErrEnded) {
		e.Describe(k.Exit, words)
	} else {
		e.Text, e.Err = err.Error(), err
		if words != "" {
			e.Text += ": " + words
		}
	}
	e.Duration = time.Since(k.Began)
	k.close()
	k.recordFailure(e)
	return e
}

// abandon ends the call with all its processes, and returns the text from its error pipe.
func (k *Call) abandon() string {
	if k.asked != nil {
		return k.hangUp()
	}
	gone := k.Child != nil && k.Kill()
	k.verdict <- true
	if gone {
		<-k.Child.Done()
	}
	return k.Said()
}

// Said returns the end of the text from the call's error pipe, without unprintable
// characters. The pipe is not read after that.
func (k *Call) Said() string {
	if k.words == nil {
		return ""
	}
	return clean(k.words.Stop())
}

// clean makes the output of a program printable in an error.
func clean(b []byte) string { return strings.TrimSpace(abi.Printable(string(b))) }

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
