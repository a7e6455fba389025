package stage1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// environment writes the documents of a call and returns its environment.
func (k *call) environment() ([]string, error) {
	r := &k.Request
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	text, err := encodeRequest(*r)
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	request, err := k.document("request-*", text)
	if err != nil {
		return nil, err
	}
	env := []string{"PATH=" + path, abi.EnvRequest + "=" + request, abi.EnvErrorFD + "=" + strconv.Itoa(abi.ErrorFD)}
	set := func(name, value string) {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	if k.ready != nil {
		set(abi.EnvReadyFD, strconv.Itoa(abi.ReadyFD))
	}
	if k.entrypoint == abi.Run {
		set(abi.EnvLockFD, strconv.Itoa(abi.LockFD))
		set(abi.EnvNotifyFD, strconv.Itoa(abi.NotifyFD))
	}
	set(abi.EnvApp, r.App)
	set(abi.EnvExec, r.Exec)
	set(abi.EnvBundle, r.Bundle)
	set(abi.EnvConsoleSocket, r.ConsoleSocket)
	if r.Signal != 0 {
		set(abi.EnvSignal, strconv.Itoa(r.Signal))
	}
	if r.Cgroup != nil {
		set(abi.EnvCgroup, strings.Join(r.Cgroup.Dirs, ":"))
	}
	if len(r.Process) > 0 {
		process, err := k.document("process-*", r.Process)
		if err != nil {
			return nil, err
		}
		set(abi.EnvProcess, process)
	}
	if strings.HasPrefix(string(k.entrypoint), "app/") {
		if k.stage1.Has(abi.Enter) {
			set(abi.EnvEnterCmd, k.stage1.entrypoint(k.Dir, abi.Enter))
		}
		set(abi.EnvEnterPID, strconv.Itoa(k.Leader))
	}
	return env, nil
}

// document writes a file that ends with the call. It holds environments of
// containers: nobody else may read it.
func (k *call) document(pattern string, text []byte) (string, error) {
	f, err := os.CreateTemp(k.Dir, pattern)
	if err != nil {
		return "", fmt.Errorf("write a document for the stage1: %w", err)
	}
	k.remove = append(k.remove, f.Name())
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("write %s: %w", filepath.Base(f.Name()), err)
	}
	return f.Name(), nil
}

// encodeRequest renders a request. The client's documents go in as they are:
// encoding/json would take out their white space and escape their <, > and &.
func encodeRequest(r abi.Request) ([]byte, error) {
	raw := []struct {
		name string
		text []byte
	}{{"spec", r.Spec}, {"process", r.Process}}
	r.Spec, r.Process = nil, nil
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Write(bytes.TrimSuffix(text, []byte("}")))
	for _, d := range raw {
		if len(d.text) > 0 {
			fmt.Fprintf(&b, ",%q:", d.name)
			b.Write(d.text)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
