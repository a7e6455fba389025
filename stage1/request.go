package stage1

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// DefaultPath is the PATH of entrypoints if the shim has none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// version7 is the dialect of interface version 7: docs/stage1-abi.md, sections 2 to 4.
type version7 struct{}

func (version7) Fields(i *image.Image) []string {
	pointers, _ := i.Fields()
	return pointers
}

// Arguments returns the arguments of interface version 6, which version 7 has kept.
func (version7) Arguments(k *Call) []string {
	r := &k.Request
	debug := "--debug=" + strconv.FormatBool(r.Debug)
	var args []string
	if r.Debug && (k.Entrypoint == abi.Run || k.Entrypoint == abi.GC) {
		args = append(args, "--debug")
	}
	switch k.Entrypoint {
	case abi.Run:
		args = append(args, "--net=host")
		if r.Sandbox != nil && r.Sandbox.Hostname != "" {
			args = append(args, "--hostname="+r.Sandbox.Hostname)
		}
		if k.Stage1.Mutable() {
			args = append(args, "--mutable")
		}
		return append(args, r.Pod)
	case abi.Stop:
		if k.Force {
			args = append(args, "--force")
		}
		return append(args, r.Pod)
	case abi.GC:
		return append(args, r.Pod)
	case abi.Enter: // the caller appends the command
		return []string{"--pid=" + strconv.Itoa(k.Leader), "--appname=" + r.App, "--"}
	case abi.AppAdd:
		return []string{debug, "--uuid=" + r.Pod, "--app=" + r.App}
	}
	return []string{debug, "--app=" + r.App}
}

// Environment writes the documents of the call and returns its environment.
func (d version7) Environment(k *Call) ([]string, error) {
	r := &k.Request
	text, err := encodeRequest(k)
	if err != nil {
		return nil, err
	}
	request, err := k.document("request-*", text)
	if err != nil {
		return nil, err
	}
	process := ""
	if k.Entrypoint == abi.Enter {
		if process, err = k.document("process-*", ociProcess(k)); err != nil {
			return nil, err
		}
	}
	e := environment{"PATH=" + SearchPath()}
	e.set(abi.EnvRequest, request)
	e.setInt(abi.EnvErrorFD, abi.ErrorFD)
	gets := d.Descriptors(k)
	if gets.ready {
		e.setInt(abi.EnvReadyFD, abi.ReadyFD)
	}
	if k.Entrypoint == abi.Run {
		e.setInt(abi.EnvLockFD, abi.LockFD)
		e.setInt(abi.EnvProcessors, 1)
	}
	if gets.notices {
		e.setInt(abi.EnvNotifyFD, abi.NotifyFD)
	}
	e.set(abi.EnvApp, r.App)
	e.set(abi.EnvExec, r.Exec)
	e.setInt(abi.EnvSignal, r.Signal)
	e.set(abi.EnvContainer, r.Container)
	e.set(abi.EnvBundle, r.Bundle)
	if r.Cgroup != nil {
		e.set(abi.EnvCgroup, strings.Join(r.Cgroup.Dirs, ":"))
		e.set(abi.EnvCgroupUnified, r.Cgroup.Unified)
	}
	e.set(abi.EnvConsoleSocket, r.ConsoleSocket)
	if r.Checkpoint != nil {
		e.set(abi.EnvCheckpoint, r.Checkpoint.Path)
	}
	e.set(abi.EnvProcess, process)
	e.set(abi.EnvTraceparent, string(r.Traceparent))
	if strings.HasPrefix(string(k.Entrypoint), "app/") {
		if k.Stage1.Has(abi.Enter) {
			e.set(abi.EnvEnterCmd, k.Stage1.EntrypointIn(k.Dir, abi.Enter))
		}
		e.setInt(abi.EnvEnterPID, k.Leader)
	}
	return e, nil
}

// Descriptors returns the kinds of descriptors that a call gets by the ABI. A `run` that
// becomes the pod's only app gets no notice pipe, because it ends with the app.
func (version7) Descriptors(k *Call) Inherited {
	app := k.Entrypoint == abi.AppAdd || k.Entrypoint == abi.Enter
	return Inherited{
		Streams: app,
		errors:  true,
		ready:   app || k.Entrypoint == abi.Run,
		notices: k.Entrypoint == abi.Run && k.Stage1.Mutable(),
	}
}

// environment is a list of NAME=value. Variables without a value are left out.
type environment []string

func (e *environment) set(name, value string) {
	if value != "" {
		*e = append(*e, name+"="+value)
	}
}

func (e *environment) setInt(name string, value int) {
	if value != 0 {
		e.set(name, strconv.Itoa(value))
	}
}

// SearchPath returns the PATH of entrypoints: the shim's, or DefaultPath.
func SearchPath() string {
	if path := os.Getenv("PATH"); path != "" {
		return path
	}
	return DefaultPath
}

// document writes a file that is removed after the call, and returns its path. Only root
// may read it, because it has environments of containers. If the disk is full, read-only or broken,
// the file is in memory, because without a request no stage1 could end a pod.
func (k *Call) document(pattern string, text []byte) (string, error) {
	path, err := k.documentOnDisk(pattern, text)
	if err == nil || errors.Is(err, fs.ErrNotExist) { // a pod that is gone needs no call
		return path, err
	}
	path, memoryErr := k.documentInMemory(pattern, text)
	if memoryErr != nil {
		return "", errors.Join(err, memoryErr)
	}
	return path, nil
}

func (k *Call) documentOnDisk(pattern string, text []byte) (string, error) {
	f, err := os.CreateTemp(k.Dir, pattern) // 0600
	if err != nil {
		return "", fmt.Errorf("write a document for the stage1: %w", err)
	}
	k.files = append(k.files, f.Name())
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("write %s: %w", filepath.Base(f.Name()), err)
	}
	return f.Name(), nil
}

// documentInMemory returns a path below /proc to a descriptor of this process. The call
// does not inherit the descriptor, and so cannot leak it to an app.
func (k *Call) documentInMemory(pattern string, text []byte) (string, error) {
	f, err := proc.Memory(pattern, text)
	if err != nil {
		return "", fmt.Errorf("write a document for the stage1: %w", err)
	}
	k.memory = append(k.memory, f)
	if err := f.Chmod(0o600); err != nil {
		return "", fmt.Errorf("write a document for the stage1: %w", err)
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), nil
}

// ociProcess returns the OCI process of an exec, with the terminal of the request. If the
// client's text says the same, it is returned byte for byte.
func ociProcess(k *Call) []byte {
	says := false
	for m := k.Process.Root.Members(); m.Next(); {
		if string(m.Name()) == "terminal" {
			says = m.Asks()
		}
	}
	if says == k.Request.Terminal {
		return k.Process.Text
	}
	wanted := strconv.AppendBool(nil, k.Request.Terminal)
	return k.Process.Root.With(spec.Change{Name: "terminal", To: func(spec.Value) []byte { return wanted }})
}

// encodeRequest encodes the request of a call. It inserts the client's documents unchanged,
// because encoding/json would parse them again, remove their white space and escape their
// <, > and &.
func encodeRequest(k *Call) ([]byte, error) {
	text, err := plainjson.Encode(k.Request)
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	if k.Spec != nil {
		text = withMember(text, "spec", k.Spec.Text)
	}
	if k.Process != nil {
		text = withMember(text, "process", k.Process.Text)
	}
	return text, nil
}

// withMember returns a JSON object with one more member. The object must not be empty.
func withMember(object []byte, name string, value []byte) []byte {
	return slices.Concat(object[:len(object)-1], []byte(`,"`+name+`":`), value, []byte("}"))
}
