package stage1

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// killLimit is how long a process may take to go after SIGKILL. One that takes
// longer hangs in the kernel, and is left to it.
const killLimit = 5 * time.Second

// Call is one call of an entrypoint: an execution, or a question on the stage1's socket. One
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

	Began   time.Time
	Child   *proc.Child   // nil if the stage1 was asked on its socket
	asked   *asked        // nil if the entrypoint was executed
	Ended   chan struct{} // closed when the call has ended; its child is not reaped yet
	Exit    abi.Status    // set before Ended is closed
	verdict chan bool     // whether what the child leaves in its group is killed

	words   *proc.Tail // what comes through the error pipe
	ready   *os.File   // read ends of the pipes
	notices *os.File
	console *console
	files   []string   // that end with the call
	memory  []*os.File // documents that the disk had no room for
}

// Start asks the stage1 on its socket, or executes the entrypoint.
func (k *Call) Start() error {
	if ok, err := k.ask(); ok || err != nil {
		return err
	}
	env, err := k.Stage1.Dialect.Environment(k)
	if err != nil {
		return err
	}
	path := k.Stage1.EntrypointIn(k.Dir, k.Entrypoint)
	return k.Execute(append([]string{path}, k.Args...), env, &syscall.SysProcAttr{Setpgid: true})
}

// Execute starts a program with the descriptors of the call and, after the last one that
// the ABI has, with more.
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
	return k.Stage1.Within(func() (err error) {
		k.Child, err = k.Stage1.Children.StartThen(argv, attr, k.end)
		if err != nil {
			return ExplainExec(argv[0], err)
		}
		return nil
	})
}

// end is called when the child has ended, on a goroutine of its own. The child
// stays a zombie until it is known whether the call has failed, because only
// until then is its process group certain to be its own.
func (k *Call) end(child *proc.Child, exit proc.Exit) {
	k.Exit = abi.Status(exit)
	close(k.Ended)
	if <-k.verdict {
		_ = child.KillGroup()
	}
}

// create starts a call that makes a process and waits until that is ready. With
// a terminal its master has arrived by then.
func (k *Call) create(ctx context.Context) (abi.Ready, error) {
	if k.Request.Terminal {
		c, err := listenConsole(k.Dir)
		if err != nil {
			return abi.Ready{}, err
		}
		k.console = c
		k.Request.ConsoleSocket = c.path
	}
	if err := k.Start(); err != nil {
		return abi.Ready{}, err
	}
	ready, err := k.AwaitReady(ctx)
	if err != nil || k.console == nil {
		return ready, err
	}
	return ready, k.console.await(ctx)
}

// errDeadline is the cause of a context that the call's own deadline has ended.
var errDeadline = errors.New("deadline of the entrypoint")

// Limit returns a context that ends with the deadline of the call.
func (k *Call) Limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(ctx, k.Began.Add(k.Stage1.Limit(k.Entrypoint)), errDeadline)
}

// ErrEnded says that the call has ended without success. Fail finds out how.
var ErrEnded = errors.New("the entrypoint has ended")

// awaitEnd waits for the call to return, and kills it at its deadline.
func (k *Call) awaitEnd(ctx context.Context) error {
	ctx, cancel := k.Limit(ctx)
	defer cancel()
	select {
	case <-k.Ended:
	case <-ctx.Done():
		return k.Hung(ctx)
	}
	if k.Exit.Code != 0 {
		return ErrEnded
	}
	return nil
}

// Hung kills a call that did not answer in time, and all that it has started. It
// returns why.
func (k *Call) Hung(ctx context.Context) error {
	how := k.giveUp()
	if cause := context.Cause(ctx); !errors.Is(cause, errDeadline) {
		return fmt.Errorf("given up after %s: %w; %s", round(time.Since(k.Began)), cause, how)
	}
	return &hungError{fmt.Sprintf("no answer within %s; %s; see %s", k.Stage1.Limit(k.Entrypoint), how, journalPath(k.Dir))}
}

// hungError is a call's deadline that has passed.
type hungError struct{ text string }

func (e *hungError) Error() string { return e.text }
func (e *hungError) Unwrap() error { return context.DeadlineExceeded }

// giveUp ends a call that did not answer, and returns how.
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

// Kill ends the process group of an execution, and reports whether its leader has gone.
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
		p.Console = k.console.take()
	}
	return p
}

func (k *Call) takeNotices() *os.File {
	n := k.notices
	k.notices = nil
	return n
}

// Release ends stage 0's part in a call that has done what it was called for,
// whether it returns now, later, or stays.
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
		k.console.close()
	}
}

// Leave waits for the end of a released call and puts it on record.
func (k *Call) Leave() {
	if k.asked != nil {
		<-k.Ended
		k.record(k.asked.words)
		return
	}
	<-k.Child.Done()
	k.record(k.Said())
}

// Fail ends a call that did not succeed: nothing of it is left running. It
// returns the error for the client, and puts it on record.
func (k *Call) Fail(err error) error {
	e := &EntrypointError{Stage1: k.Stage1.name, Entrypoint: k.Entrypoint, Code: -1}
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

// abandon leaves nothing of the call running, and returns what it has said.
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

// Said returns the end of what the call has written to its error pipe until now, fit for an
// error. Nothing is read after that.
func (k *Call) Said() string {
	if k.words == nil {
		return ""
	}
	return clean(k.words.Stop())
}

// clean makes what a program wrote fit into an error.
func clean(b []byte) string { return strings.TrimSpace(abi.Printable(string(b))) }

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
