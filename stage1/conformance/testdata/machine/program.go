package main

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// process is a program that the machine runs.
type process struct {
	app     *app
	exec    string
	verb    string
	args    []string
	stdio   [3]*os.File
	proxy   *os.Process
	ready   abi.Ready // of the proxy, which may have ended when stage 0 looks
	exit    *os.File  // write end of the proxy's pipe
	signals chan unix.Signal
	started atomic.Bool
	ended   chan struct{}
	finish  sync.Once
}

// programs are the verbs. They are called like those of the kit's program, and end when the
// process does.
var programs = map[string]func(*process) int{
	"exit": func(p *process) int { return p.number() },
	"say": func(p *process) int {
		for i, text := range p.args {
			fmt.Fprint(p.stdio[1+i], text)
		}
		return 0
	},
	"echo": func(p *process) int {
		_, _ = io.Copy(p.stdio[1], p.stdio[0])
		if len(p.args) == 0 {
			return 0
		}
		return p.number()
	},
	"wait": func(p *process) int {
		fmt.Fprintln(p.stdio[1], "waiting")
		sig := <-p.signals
		return 40 + int(sig)
	},
	"tick": func(p *process) int {
		for n := 0; p.alive(); n++ {
			p.app.run(time.Millisecond)
			fmt.Fprintln(p.stdio[1], n)
			time.Sleep(10 * time.Millisecond)
		}
		return 0
	},
	"eat": eat,
	"feed": func(p *process) int {
		if _, err := p.stdio[0].Read(make([]byte, 1)); err != nil {
			return 1
		}
		return eat(p)
	},
	"testprog": func(p *process) int { <-p.ended; return 0 }, // of images that other tests use
}

func eat(p *process) int {
	if !p.app.eat(uint64(p.number()) << 20) {
		return proc.KilledCode
	}
	fmt.Fprintln(p.stdio[1], "eaten")
	<-p.ended
	return 0
}

func (p *process) number() int {
	n, err := strconv.Atoi(p.args[0])
	if err != nil {
		return 125
	}
	return n
}

// process makes a process with its proxy, which stands still until it is started.
func (a *app) process(c *serve.Asked, oci *specs.Process) (*process, error) {
	if c.Terminal {
		return nil, fmt.Errorf("terminals: %w", errUnsupported)
	}
	args, err := a.find(oci)
	if err != nil {
		return nil, err
	}
	p := &process{app: a, exec: c.Exec, verb: args[0], args: args[1:], signals: make(chan unix.Signal, 8), ended: make(chan struct{})}
	for i, f := range c.Stdio {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 10) // the server closes its own
		if err != nil {
			return nil, err
		}
		p.stdio[i] = os.NewFile(uintptr(fd), "stream")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	if p.proxy, err = os.StartProcess("/proc/self/exe", []string{proxyName}, &os.ProcAttr{Files: []*os.File{null, null, null, r}}); err != nil {
		return nil, err
	}
	p.exit = w
	start, err := proc.StartTime(p.proxy.Pid)
	if err != nil {
		_ = p.proxy.Kill()
		return nil, err
	}
	p.ready = abi.Ready{PID: p.proxy.Pid, StartTime: start, Recorder: abi.RecorderStage1}
	for _, dir := range c.Cgroup.All() {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(p.proxy.Pid)), 0); err != nil {
			_ = p.proxy.Kill()
			return nil, err
		}
	}
	a.m.mu.Lock()
	a.processes = append(a.processes, p)
	a.m.mu.Unlock()
	go func() {
		// The exit is recorded before the proxy is reaped.
		for unix.Waitid(unix.P_PID, p.proxy.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		p.end(proc.KilledCode) // unless the process has ended first
		_, _ = p.proxy.Wait()
	}()
	return p, nil
}

// isProgram reports whether a file is a program for Linux. The kit's program is the only one: its
// first argument is the verb.
func isProgram(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	magic := make([]byte, 4)
	_, err = io.ReadFull(f, magic)
	return err == nil && string(magic) == elf.ELFMAG
}

// find returns the verb of a process and its arguments, or why it cannot be executed. A program
// may be a verb itself, whether it is in the root or not.
func (a *app) find(p *specs.Process) ([]string, error) {
	if st, err := os.Stat(filepath.Join(a.root, p.Cwd)); err != nil || !st.IsDir() {
		return nil, fmt.Errorf("chdir %s: no such file or directory", p.Cwd)
	}
	name := p.Args[0]
	st, err := os.Stat(filepath.Join(a.root, name))
	switch {
	case programs[filepath.Base(name)] != nil:
		return append([]string{filepath.Base(name)}, p.Args[1:]...), nil
	case err == nil && isProgram(filepath.Join(a.root, name)):
		return p.Args[1:], nil
	case filepath.Base(name) == name:
		return nil, fmt.Errorf("exec: %q: executable file not found in $PATH", name)
	case err != nil:
		return nil, fmt.Errorf("exec %s: no such file or directory", name)
	case st.IsDir():
		return nil, fmt.Errorf("exec %s: is a directory", name)
	case st.Mode()&0o111 == 0:
		return nil, fmt.Errorf("exec %s: permission denied", name)
	}
	return []string{name}, nil // it cannot be started
}

// start runs the program.
func (p *process) start() error {
	program := programs[p.verb]
	if program == nil {
		p.end(126)
		return fmt.Errorf("exec: %q: the machine knows no such verb", p.verb)
	}
	if !p.alive() || !p.started.CompareAndSwap(false, true) {
		return errState
	}
	go func() { p.end(program(p)) }()
	return nil
}

func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// signal delivers a signal. Only the verb wait handles any.
func (p *process) signal(sig unix.Signal) {
	switch {
	case sig == unix.SIGKILL || (p.verb != "wait" || !p.started.Load()) && proc.Fatal(sig):
		p.end(128 + int(sig))
	default:
		select {
		case p.signals <- sig:
		default:
		}
	}
}

// end ends the process: it records and announces the exit, and then ends the proxy. The app
// ends with its first process.
func (p *process) end(code int) {
	p.finish.Do(func() {
		close(p.ended)
		for _, f := range p.stdio {
			_ = f.Close()
		}
		if p.app.processes[0] == p {
			for _, q := range p.app.all()[1:] {
				q.end(proc.KilledCode)
			}
		}
		status := abi.Status{Code: code, Time: time.Now()}
		if p.exec == "" {
			_ = abi.WriteStatus(abi.StatusDir, p.app.name, "", status)
		}
		notice := abi.Notice{App: p.app.name, Exec: p.exec}
		if p.app.m.words {
			notice.Status = &status
		} else if p.exec != "" {
			_ = abi.WriteStatus(abi.StatusDir, p.app.name, p.exec, status)
		}
		_, _ = p.app.m.notices.Write(notice.Format())
		_, _ = p.exit.Write([]byte{byte(code)})
		_ = p.exit.Close()
	})
}
