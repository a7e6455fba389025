package rktfront

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// call is one execution of an entrypoint by the rules of interface version 7.
type call struct {
	env   []string
	files []*os.File // its descriptors
	said  *os.File   // gets the text of RKT_ERROR_FD
	kept  []*os.File // closed when the call has ended
}

// given is a descriptor for a call, and the environment variable for its number. If file is
// nil, both are left out.
type given struct {
	variable string
	file     *os.File
}

// nowhere stands for no streams. The output of such a call counts as error text.
var nowhere [3]*os.File

// do executes the entrypoint of a request and waits until it ends. The entrypoint must make
// no process.
func (p *pod) do(r *abi.Request, options ...string) error {
	_, err := p.call(r, nowhere, options...)
	return err
}

// call executes the entrypoint of a request, waits until it ends, and returns the process
// that it reports. If the caller wants to adopt that process, it must hold an Expect of the
// pod's children.
//
// The output of the entrypoint goes to files, which call reads when the entrypoint has
// ended. So call does not wait for processes that keep the output open.
func (p *pod) call(r *abi.Request, stdio [3]*os.File, options ...string) (*abi.Ready, error) {
	ready, err := proc.Memory("ready", nil)
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	c, child, err := p.execute(r, stdio, []given{{abi.EnvReadyFD, ready}}, options...)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if exit := child.Wait(); exit.Code != 0 {
		return nil, c.failed(exit)
	}
	line, err := written(ready)
	if err != nil || len(line) == 0 {
		return nil, err
	}
	return parseReady(line)
}

// execute starts the entrypoint of a request. The entrypoint is killed when this process
// ends. The caller closes the call.
func (p *pod) execute(r *abi.Request, stdio [3]*os.File, more []given, options ...string) (*call, *proc.Child, error) {
	// An empty value means the caller's cgroup. The scripts of oci need the variable.
	c := &call{env: []string{"PATH=" + os.Getenv("PATH"), abi.EnvCgroup + "="}, files: stdio[:]}
	err := c.prepare(r, more)
	var child *proc.Child
	if err == nil {
		path := filepath.Join(p.scripts, strings.ReplaceAll(string(r.Entrypoint), "/", "_"))
		argv := slices.Concat([]string{path}, options, arguments(r))
		child, err = p.children.Start(argv, &os.ProcAttr{
			Dir: front, Env: c.env, Files: c.files, Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
		})
	}
	if err != nil {
		c.close()
		return nil, nil, fmt.Errorf("call %s: %w", r.Entrypoint, err)
	}
	return c, child, nil
}

// arguments returns the arguments of the rkt ABI, which are also those of version 7.
func arguments(r *abi.Request) []string {
	switch r.Entrypoint {
	case abi.Run:
		return []string{"--net=host", "--mutable", r.Pod}
	case abi.Stop, abi.GC:
		return []string{r.Pod}
	case abi.Enter:
		return []string{"--appname=" + r.App}
	case abi.AppAdd:
		return []string{"--debug=false", "--uuid=" + r.Pod, "--app=" + r.App}
	}
	return []string{"--debug=false", "--app=" + r.App}
}

// prepare makes the documents of a call, its environment and its descriptors.
func (c *call) prepare(r *abi.Request, more []given) error {
	text, err := json.Marshal(r)
	if err == nil {
		err = c.document(abi.EnvRequest, text)
	}
	if err == nil && r.Process != nil {
		err = c.document(abi.EnvProcess, r.Process)
	}
	if err == nil {
		c.said, err = c.file(nil)
	}
	if err != nil {
		return err
	}
	c.set(abi.EnvApp, r.App)
	c.set(abi.EnvExec, r.Exec)
	c.set(abi.EnvContainer, r.Container)
	c.set(abi.EnvBundle, r.Bundle)
	c.set(abi.EnvConsoleSocket, r.ConsoleSocket)
	for _, g := range append([]given{{abi.EnvErrorFD, c.said}}, more...) {
		if g.file != nil {
			c.set(g.variable, fmt.Sprint(len(c.files)))
			c.files = append(c.files, g.file)
		}
	}
	if c.files[0] == nil {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		c.kept = append(c.kept, null)
		c.files[0], c.files[1], c.files[2] = null, c.said, c.said
	}
	return nil
}

func (c *call) set(variable, value string) {
	if value != "" {
		c.env = append(c.env, variable+"="+value)
	}
}

// document makes a file that only root can read, and puts its path into the environment.
func (c *call) document(variable string, text []byte) error {
	f, err := c.file(text)
	if err == nil {
		c.set(variable, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()))
	}
	return err
}

// file makes a file that is closed with the call.
func (c *call) file(text []byte) (*os.File, error) {
	f, err := proc.Memory("rktfront", text)
	if err == nil {
		c.kept = append(c.kept, f)
	}
	return f, err
}

// failed returns the error of a call that has ended with this exit.
func (c *call) failed(exit proc.Exit) error {
	text, err := written(c.said)
	if err != nil {
		return err
	}
	if exit.Code == 0 {
		exit.Code = exitFatal
	}
	return &failure{exit.Code, strings.TrimSpace(string(text))}
}

func (c *call) close() {
	for _, f := range c.kept {
		f.Close()
	}
}

// written returns the text that an entrypoint has written to a file.
func written(f *os.File) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(f, 0, abi.MaxErrorText))
}

func parseReady(line []byte) (*abi.Ready, error) {
	ready := &abi.Ready{}
	if err := json.Unmarshal(line, ready); err != nil {
		return nil, fmt.Errorf("ready line %.80q: %w", line, err)
	}
	return ready, nil
}
