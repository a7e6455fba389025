package stage1

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// lastWords is how long stage 0 goes on reading from a pipe of a call that has
// ended, in case something has inherited it.
const lastWords = 200 * time.Millisecond

// call is one execution of an entrypoint. Its methods are called in order by one
// goroutine: start, then awaitReady or awaitEnd or both, then finish or fail.
type call struct {
	stage1     *Stage1
	entrypoint abi.Entrypoint
	pod.Call
	args  []string    // behind argv[0]
	stdio [3]*os.File // of app/add and enter; nil is /dev/null
	lock  *os.File    // of run

	began   time.Time
	child   *proc.Child
	errors  *tail
	ready   *os.File // read ends of the pipes
	notices *os.File
	console *console
	remove  []string // files that end with the call
}

// newCall returns a call that is not started.
func (s *Stage1) newCall(c pod.Call, e abi.Entrypoint) (*call, error) {
	if !s.Has(e) {
		return nil, s.errMissing(e)
	}
	c.Request.Version = abi.Version
	c.Request.Entrypoint = e
	k := &call{stage1: s, entrypoint: e, Call: c, began: time.Now()}
	k.args = k.arguments()
	return k, nil
}

// arguments returns the arguments of interface version 6.
func (k *call) arguments() []string {
	r := &k.Request
	debug := "--debug=" + strconv.FormatBool(r.Debug)
	var args []string
	switch k.entrypoint {
	case abi.Run:
		if r.Debug {
			args = append(args, "--debug")
		}
		args = append(args, "--net=host")
		if r.Sandbox != nil && r.Sandbox.Hostname != "" {
			args = append(args, "--hostname="+r.Sandbox.Hostname)
		}
		return append(args, "--mutable", r.Pod)
	case abi.Enter:
		return []string{"--pid=" + strconv.Itoa(k.Leader), "--appname=" + r.App, "--"}
	case abi.Stop:
		if k.Force {
			args = append(args, "--force")
		}
		return append(args, r.Pod)
	case abi.GC:
		if r.Debug {
			args = append(args, "--debug")
		}
		return append(args, r.Pod)
	case abi.AppAdd:
		return []string{debug, "--uuid=" + r.Pod, "--app=" + r.App}
	}
	return []string{debug, "--app=" + r.App}
}

// create starts a call that makes a process, and waits for it to be ready. With
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

// start executes the entrypoint.
func (k *call) start() (err error) {
	path := k.stage1.entrypoint(k.Dir, k.entrypoint)
	var files descriptors
	defer files.close()
	if err := k.open(&files); err != nil {
		return err
	}
	env, err := k.environment()
	if err != nil {
		return err
	}
	k.child, err = k.stage1.children.Start(append([]string{path}, k.args...), &os.ProcAttr{
		Dir:   k.Dir,
		Env:   env,
		Files: files.table[:],
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOEXEC) {
		return fmt.Errorf("cannot execute %s: is its interpreter there? %w", path, err)
	}
	return err
}

// descriptors is the table that a call inherits. Those that are ours to close
// once it has them are in own.
type descriptors struct {
	table [abi.NotifyFD + 1]*os.File
	own   []*os.File
}

func (d *descriptors) set(fd int, f *os.File) {
	d.table[fd] = f
	d.own = append(d.own, f)
}

// pipe makes a pipe, whose write end the call gets as fd.
func (d *descriptors) pipe(fd int) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	d.set(fd, w)
	return r, nil
}

func (d *descriptors) close() {
	for _, f := range d.own {
		_ = f.Close()
	}
}

// open fills the descriptor table.
func (k *call) open(d *descriptors) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	d.set(0, null)
	r, err := d.pipe(abi.ErrorFD)
	if err != nil {
		return err
	}
	k.errors = readTail(r)
	if err := k.openStdio(d); err != nil {
		return err
	}
	if k.entrypoint == abi.Run || k.entrypoint == abi.AppAdd || k.entrypoint == abi.Enter {
		if k.ready, err = d.pipe(abi.ReadyFD); err != nil {
			return err
		}
	}
	if k.entrypoint == abi.Run {
		d.table[abi.LockFD] = k.lock
		if k.notices, err = d.pipe(abi.NotifyFD); err != nil {
			return err
		}
	}
	return nil
}

// openStdio decides what the call's 0, 1 and 2 are.
func (k *call) openStdio(d *descriptors) error {
	switch k.entrypoint {
	case abi.AppAdd, abi.Enter:
		for fd, f := range k.stdio {
			if f == nil {
				f = d.own[0] // /dev/null
			}
			d.table[fd] = f
		}
	case abi.Run:
		// The supervisor outlives the call, and its error pipe with it.
		log, err := os.OpenFile(filepath.Join(k.Dir, runLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		d.set(1, log)
		d.table[2] = log
	default:
		d.table[1], d.table[2] = d.table[abi.ErrorFD], d.table[abi.ErrorFD]
	}
	return nil
}

// runLog is what `run` has as its standard output and error.
const runLog = "run.log"

// awaitEnd waits for the call to return, and kills it at its deadline.
func (k *call) awaitEnd(ctx context.Context) error {
	ctx, cancel := k.limit(ctx)
	defer cancel()
	select {
	case <-k.child.Done():
	case <-ctx.Done():
		return k.hung(ctx)
	}
	if st := k.child.Wait(); st.Code != 0 {
		return errEnded
	}
	return nil
}

// errEnded says that the call has ended without success; fail finds out how.
var errEnded = errors.New("ended")

func (k *call) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, k.began.Add(deadline(k.entrypoint)))
}

// hung kills a call that did not answer in time, and all it has started.
func (k *call) hung(ctx context.Context) error {
	_ = k.child.KillGroup()
	<-k.child.Done()
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return fmt.Errorf("no answer after %s; it was killed: look at what %s waits for", time.Since(k.began).Round(10*time.Millisecond), k.stage1.entrypoint("", k.entrypoint))
	}
	return fmt.Errorf("given up after %s, and killed: %w", time.Since(k.began).Round(10*time.Millisecond), context.Cause(ctx))
}

// takeConsole hands over the pty master, takeNotices the notice pipe.
func (k *call) takeConsole() *os.File {
	if k.console == nil {
		return nil
	}
	return k.console.take()
}

func (k *call) takeNotices() *os.File {
	n := k.notices
	k.notices = nil
	return n
}

// finish ends a call whose outcome is known: its files go, and it is put on
// record. With err nil the call may still be running, if it is meant to stay.
func (k *call) finish(err error) {
	for _, f := range k.remove {
		_ = os.Remove(f)
	}
	for _, f := range []*os.File{k.ready, k.notices} {
		if f != nil {
			_ = f.Close()
		}
	}
	if k.console != nil {
		k.console.close()
	}
	if k.errors != nil {
		k.errors.close()
	}
	k.journal(err)
}

// fail ends a call that did not succeed: nothing of it is left running. It
// returns the error for the client.
func (k *call) fail(err error) error {
	e := &EntrypointError{Stage1: k.stage1.name, Entrypoint: k.entrypoint, Code: -1}
	if k.child != nil {
		_ = k.child.KillGroup()
		<-k.child.Done()
	}
	if k.errors != nil {
		e.Text = k.errors.text(lastWords)
	}
	if errors.Is(err, errEnded) {
		e.describeEnd(k.child.Wait())
	} else {
		e.Reason = err.Error()
	}
	e.Duration = time.Since(k.began)
	if k.entrypoint == abi.Run && e.Text == "" {
		e.Text = lastBytes(filepath.Join(k.Dir, runLog))
	}
	k.finish(e)
	return e
}

// describeEnd says how the call has ended, where its own text does not.
func (e *EntrypointError) describeEnd(st abi.Status) {
	switch {
	case st.Signal != 0:
		e.Reason = fmt.Sprintf("killed by signal %d (%s)", st.Signal, syscall.Signal(st.Signal))
	case st.Code == 0:
		e.Reason = "ended with exit code 0 before its process was ready"
	default:
		e.Code = st.Code
		if e.Text == "" {
			e.Reason = fmt.Sprintf("exit code %d, and no word on RKT_ERROR_FD", st.Code)
		}
	}
}
