package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// process is a program of a machine. It ends with this process.
type process struct {
	*proc.Child
	name   string
	stderr *proc.Tail
}

// maxSaid is how much of a program's errors is kept.
const maxSaid = 4096

// start starts a program with files as its descriptors from 3 on. A program that the kernel is to
// kill with its parent is killed with the thread that has started it, so that thread waits for
// the program.
func start(children *proc.Children, argv []string, files []*os.File, sys *syscall.SysProcAttr) (*process, error) {
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
	sys.Pdeathsig, sys.Setsid = syscall.SIGKILL, true
	attr := &os.ProcAttr{Dir: "/", Env: []string{}, Files: append([]*os.File{null, w, w}, files...), Sys: sys}

	type started struct {
		child *proc.Child
		err   error
	}
	c := make(chan started)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		child, err := children.Start(argv, attr)
		c <- started{child, err}
		if err == nil {
			child.Wait()
		}
	}()
	s := <-c
	if s.err != nil {
		r.Close()
		return nil, s.err
	}
	return &process{Child: s.child, name: filepath.Base(argv[0]), stderr: proc.ReadTail(r, maxSaid)}, nil
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
