package stage1

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// killLimit is how long a process may take to go after SIGKILL. One that takes
// longer hangs in the kernel, and is left to it.
const killLimit = 5 * time.Second

// call is one execution of an entrypoint. One goroutine calls its methods:
//
//	start ─► awaitReady, awaitEnd ─► release ─► leave     success
//	      └─────────┴─────────────► fail                  anything else
type call struct {
	stage1     *Stage1
	entrypoint abi.Entrypoint
	pod.Call
	args  []string    // behind argv[0]
	stdio [3]*os.File // of app/add and enter; nil is /dev/null
	lock  *os.File    // of run

	interactive bool // of run: the app reads the streams that it inherits

	began   time.Time
	child   *proc.Child
	ended   chan struct{} // closed when the child has ended; it is not reaped yet
	exit    proc.Exit     // set before ended is closed
	verdict chan bool     // whether what the child leaves in its group is killed

	words   *tail    // what comes through the error pipe
	ready   *os.File // read ends of the pipes
	notices *os.File
	console *console
	files   []string   // that end with the call
	memory  []*os.File // documents that the disk had no room for
}

// start executes the entrypoint.
func (k *call) start() error {
	env, err := k.stage1.dialect.environment(k)
	if err != nil {
		return err
	}
	path := k.stage1.entrypoint(k.Dir, k.entrypoint)
	return k.execute(append([]string{path}, k.args...), env, &syscall.SysProcAttr{Setpgid: true})
}

// execute starts a program with the descriptors of the call and, after the last one that
// the ABI has, with more.
func (k *call) execute(argv, env []string, sys *syscall.SysProcAttr, more ...*os.File) error {
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
	return k.stage1.in(func() (err error) {
		k.child, err = k.stage1.children.StartThen(argv, attr, k.end)
		if err != nil {
			return explainExec(argv[0], err)
		}
		return nil
	})
}

// end is called when the child has ended, on a goroutine of its own. The child
// stays a zombie until it is known whether the call has failed, because only
// until then is its process group certain to be its own.
func (k *call) end(child *proc.Child, exit proc.Exit) {
	k.exit = exit
	close(k.ended)
	if <-k.verdict {
		_ = child.KillGroup()
	}
}

// create starts a call that makes a process and waits until that is ready. With
// a terminal its master has arrived by then.
func (k *call) create(ctx context.Context) (abi.Ready, error) {
	if k.Request.Terminal {
		c, err := listenConsole(k.Dir)
		if err != nil {
			return abi.Ready{}, err
		}
		k.console = c
		k.Request.ConsoleSocket = c.path
	}
	if err := k.start(); err != nil {
		return abi.Ready{}, err
	}
	ready, err := k.awaitReady(ctx)
	if err != nil || k.console == nil {
		return ready, err
	}
	return ready, k.console.await(ctx)
}

// errDeadline is the cause of a context that the call's own deadline has ended.
var errDeadline = errors.New("deadline of the entrypoint")

func (k *call) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(ctx, k.began.Add(k.stage1.limit(k.entrypoint)), errDeadline)
}

// errEnded says that the call has ended without success. How, fail finds out.
var errEnded = errors.New("the entrypoint has ended")

// awaitEnd waits for the call to return, and kills it at its deadline.
func (k *call) awaitEnd(ctx context.Context) error {
	ctx, cancel := k.limit(ctx)
	defer cancel()
	select {
	case <-k.ended:
	case <-ctx.Done():
		return k.hung(ctx)
	}
	if k.exit.Code != 0 {
		return errEnded
	}
	return nil
}

// hung kills a call that did not answer in time, and all that it has started. It
// returns why.
func (k *call) hung(ctx context.Context) error {
	how := "the entrypoint was killed"
	if !k.kill() {
		how = fmt.Sprintf("the entrypoint was killed, but process %d hangs in the kernel", k.child.PID())
	}
	if cause := context.Cause(ctx); !errors.Is(cause, errDeadline) {
		return fmt.Errorf("given up after %s: %w; %s", round(time.Since(k.began)), cause, how)
	}
	return &hungError{fmt.Sprintf("no answer within %s; %s; see %s", k.stage1.limit(k.entrypoint), how, journalPath(k.Dir))}
}

// hungError is a call's deadline that has passed.
type hungError struct{ text string }

func (e *hungError) Error() string { return e.text }
func (e *hungError) Unwrap() error { return context.DeadlineExceeded }

// kill ends the call's process group, and tells whether its leader has gone.
func (k *call) kill() bool {
	_ = k.child.KillGroup()
	limit := time.NewTimer(killLimit)
	defer limit.Stop()
	select {
	case <-k.ended:
		return true
	case <-limit.C:
		return false
	}
}

// process describes the process that the call has reported.
func (k *call) process(ready abi.Ready) *pod.Process {
	p := &pod.Process{PID: ready.PID, StartTime: ready.StartTime, Recorder: k.recorder(ready)}
	if k.console != nil {
		p.Console = k.console.take()
	}
	return p
}

func (k *call) takeNotices() *os.File {
	n := k.notices
	k.notices = nil
	return n
}

// release ends stage 0's part in a call that has done what it was called for,
// whether it returns now, later, or stays.
func (k *call) release() {
	k.verdict <- false
	k.close()
}

// close removes the files of the call and closes its descriptors.
func (k *call) close() {
	for _, f := range k.files {
		_ = os.Remove(f)
	}
	for _, f := range append(k.memory, k.ready, k.notices) {
		if f != nil {
			_ = f.Close()
		}
	}
	if k.console != nil {
		k.console.close()
	}
}

// leave waits for the end of a released call and puts it on record.
func (k *call) leave() {
	<-k.child.Done()
	k.record(k.words.stop())
}

// fail ends a call that did not succeed: nothing of it is left running. It
// returns the error for the client, and puts it on record.
func (k *call) fail(err error) error {
	e := &EntrypointError{Stage1: k.stage1.name, Entrypoint: k.entrypoint, Code: -1}
	gone := k.child != nil && k.kill()
	k.verdict <- true
	if gone {
		<-k.child.Done()
	}
	words := ""
	if k.words != nil {
		words = k.words.stop()
	}
	if errors.Is(err, errEnded) {
		e.describe(k.exit, words)
	} else {
		e.Text, e.Err = err.Error(), err
		if words != "" {
			e.Text += ": " + words
		}
	}
	e.Duration = time.Since(k.began)
	k.close()
	k.recordFailure(e)
	return e
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
