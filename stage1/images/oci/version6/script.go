package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// scratch is where the documents of calls are, from the pod's directory.
const scratch = "stage1/rootfs/rkt/oci"

// failure is the exit code of a call, and its words.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

// exitFatal is the exit code of rkt's own entrypoints for whatever went wrong in them.
const exitFatal = 254

func codeOf(err error) int {
	if f := (*failure)(nil); errors.As(err, &f) {
		return f.code
	}
	if err != nil {
		return exitFatal
	}
	return 0
}

// call is one execution of an entrypoint, as interface version 7 has it.
type call struct {
	env   []string
	files []*os.File // its descriptors from 3 on
	paths []string   // removed when it has ended
}

// nowhere are the streams of a call that is given none: what it says is an error.
var nowhere [3]*os.File

// script executes the entrypoint of a request and returns the process that it reports.
// Whoever wants to adopt that one holds an Expect of the pod's children.
func (p *pod) script(r *abi.Request, stdio [3]*os.File) (*abi.Ready, error) {
	c := &call{env: []string{"PATH=" + os.Getenv("PATH"), abi.EnvCgroup + "="}}
	defer c.close()
	if err := c.prepare(r); err != nil {
		return nil, fmt.Errorf("prepare a call of %s: %w", r.Entrypoint, err)
	}
	files := append(stdio[:], c.files...)
	if stdio == nowhere {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return nil, err
		}
		defer null.Close()
		files[0], files[1], files[2] = null, c.files[0], c.files[0]
	}
	argv := []string{filepath.Join(p.scripts, strings.ReplaceAll(string(r.Entrypoint), "/", "_"))}
	child, err := p.children.Start(argv, &os.ProcAttr{Env: c.env, Files: files})
	if err != nil {
		return nil, err
	}
	exit := child.Wait()
	if exit.Code != 0 {
		text, err := c.written(abi.ErrorFD)
		if err != nil {
			return nil, err
		}
		return nil, &failure{exit.Code, strings.TrimSpace(string(text))}
	}
	ready, err := c.written(abi.ReadyFD)
	if err != nil || len(ready) == 0 {
		return nil, err
	}
	process := &abi.Ready{}
	return process, json.Unmarshal(ready, process)
}

// prepare makes the documents of a call and its environment. What the entrypoint writes
// goes to files: it is read when the call has ended, and nobody waits for who keeps them
// open.
func (c *call) prepare(r *abi.Request) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := c.document(abi.EnvRequest, text); err != nil {
		return err
	}
	if r.Process != nil {
		if err := c.document(abi.EnvProcess, r.Process); err != nil {
			return err
		}
	}
	c.set(abi.EnvApp, r.App)
	c.set(abi.EnvExec, r.Exec)
	c.set(abi.EnvContainer, r.Container)
	c.set(abi.EnvBundle, r.Bundle)
	c.set(abi.EnvConsoleSocket, r.ConsoleSocket)
	for fd, variable := range map[int]string{abi.ErrorFD: abi.EnvErrorFD, abi.ReadyFD: abi.EnvReadyFD} {
		c.set(variable, fmt.Sprint(fd))
	}
	for range 2 {
		f, err := os.CreateTemp(scratch, "said-")
		if err != nil {
			return err
		}
		c.files, c.paths = append(c.files, f), append(c.paths, f.Name())
	}
	return nil
}

func (c *call) set(variable, value string) {
	if value != "" {
		c.env = append(c.env, variable+"="+value)
	}
}

// document writes a file that only we can read, and names it in the environment.
func (c *call) document(variable string, text []byte) error {
	f, err := os.CreateTemp(scratch, "call-")
	if err != nil {
		return err
	}
	defer f.Close()
	c.paths = append(c.paths, f.Name())
	path, err := filepath.Abs(f.Name())
	if err != nil {
		return err
	}
	c.set(variable, path)
	_, err = f.Write(text)
	return err
}

// written returns what the entrypoint has written to a descriptor.
func (c *call) written(fd int) ([]byte, error) {
	f := c.files[fd-abi.ErrorFD]
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, abi.MaxErrorText))
}

func (c *call) close() {
	for _, f := range c.files {
		f.Close()
	}
	for _, path := range c.paths {
		_ = os.Remove(path)
	}
}
