package machine

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// program says how a program of a machine is started.
type program struct {
	path  string // "": that of argv[0]
	argv  []string
	files []*os.File // its descriptors from 3 on
	sys   syscall.SysProcAttr
	// prepare changes the thread that starts the program, which inherits the change.
	prepare func() error
	// started is called on the same thread after the program was started, and may change that thread back.
	started func() error
}

// process is a program of a machine. It ends with this process.
type process struct {
	*proc.Child
	name   string
	stderr *proc.Tail
	thread *thread
}

// maxSaid is how much of a program's errors is kept.
const maxSaid = 4096

// environment has the C library keep one heap for all threads: with one for each thread, QEMU has a MB more.
var environment = []string{"MALLOC_ARENA_MAX=1"}

// start starts a program in the machine's cgroup. Its thread lasts as long as the program does,
// because the kernel kills the program with the thread that has started it.
func start(c *Config, p *program) (*process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	p.sys.Pdeathsig, p.sys.Setsid = syscall.SIGKILL, true
	proc.SealDescriptors() // what this process has inherited is not for guests
	attr := &os.ProcAttr{Dir: "/", Env: environment, Files: append([]*os.File{null, w, w}, p.files...), Sys: &p.sys}

	t := newThread()
	child, err := c.Children.Make(func() (pid int, err error) {
		err = t.do(func() error {
			if p.prepare != nil {
				if err := p.prepare(); err != nil {
					return err
				}
			}
			proc.UseAllCPUs() // for the program, whose threads are the guest's processors
			started, err := os.StartProcess(cmp.Or(p.path, p.argv[0]), p.argv, attr)
			if err != nil {
				return err
			}
			if p.started != nil {
				if err := p.started(); err != nil {
					return errors.Join(err, started.Kill(), started.Release()) // without an owner, it is reaped as an unknown child
				}
			}
			pid = started.Pid
			return started.Release()
		})
		return pid, err
	})
	if err != nil {
		t.end()
		r.Close()
		return nil, err
	}
	child.Decide(nil, func(proc.Exit) { t.end() })
	started := &process{Child: child, name: filepath.Base(p.argv[0]), stderr: proc.ReadTail(r, maxSaid), thread: t}
	if err := started.enter(c.Cgroup); err != nil {
		_ = child.Kill()
		started.end()
		return nil, err
	}
	return started, nil
}

// enter moves a program that has just been started into cgroups.
func (p *process) enter(cgroups []string) error {
	for _, dir := range cgroups {
		if err := proc.WriteFile(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(p.PID())); err != nil {
			return fmt.Errorf("move %s into the machine's cgroup: %w", p.name, err)
		}
	}
	return nil
}

// end waits for the end of the program and of its output.
func (p *process) end() {
	p.Wait()
	p.stderr.Stop()
}

// said returns what an ended program has written.
func (p *process) said() string { return strings.TrimSpace(string(p.stderr.Stop())) }

// failure returns how an ended program has ended.
func (p *process) failure() error {
	how := fmt.Sprintf("has exited with %d", p.Wait().Code)
	if sig := p.Wait().Signal; sig != 0 {
		how = fmt.Sprintf("was killed by signal %d", sig)
	}
	if said := p.said(); said != "" {
		how += ": " + said
	}
	return fmt.Errorf("%s %s", p.name, how)
}

// thread is a thread of this process that no other goroutine gets, and that ends with end.
type thread struct {
	jobs  chan job
	ended chan struct{}
}

type job struct {
	f    func() error
	done chan error
}

func newThread() *thread {
	t := &thread{jobs: make(chan job), ended: make(chan struct{})}
	go func() {
		_ = proc.OnThread(func() error {
			for {
				select {
				case j := <-t.jobs:
					j.done <- j.f()
				case <-t.ended:
					return nil
				}
			}
		})
	}()
	return t
}

// do calls f on the thread.
func (t *thread) do(f func() error) error {
	j := job{f, make(chan error, 1)}
	select {
	case t.jobs <- j:
		return <-j.done
	case <-t.ended:
		return fmt.Errorf("the process has ended")
	}
}

// end must be called once.
func (t *thread) end() { close(t.ended) }
