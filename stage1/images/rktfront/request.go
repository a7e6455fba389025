package rktfront

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/client"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/podmanifest"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/rktfront/relay"
)

// ask sends a call to the pod's `run` and returns the exit code. If the caller has a
// terminal, so has a program that is entered.
func ask(e abi.Entrypoint, args []string) int {
	c := &client.Call{Entrypoint: e, Error: os.Stderr}
	var terminal *relay.Relay
	var err error
	if e == abi.Enter {
		c.Stdio = [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
		if terminal, err = enterTerminal(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = terminal.Close() }() // the terminal may be closed already
	}
	code := 1
	if c.Request, err = document(e, args, terminal); err == nil {
		code, err = client.Ask(c)
		terminal.Drain(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

// document makes the request document of a call.
func document(e abi.Entrypoint, args []string, terminal *relay.Relay) ([]byte, error) {
	r, err := request(e, args)
	if err != nil {
		return nil, err
	}
	if err := onTerminal(r, terminal); err != nil {
		return nil, err
	}
	return json.Marshal(r)
}

// request returns the request of a call, from its arguments.
func request(e abi.Entrypoint, args []string) (*abi.Request, error) {
	switch e {
	case abi.Enter:
		return enter(args)
	case abi.Stop:
		return &abi.Request{Version: abi.Version, Entrypoint: e, Force: slices.Contains(args, "--force")}, nil
	}
	name := ""
	for _, arg := range args {
		if value, ok := strings.CutPrefix(strings.TrimLeft(arg, "-"), "app="); ok {
			name = value
		}
	}
	if name == "" {
		return nil, fmt.Errorf("%s: there is neither a request nor --app", e)
	}
	if e == abi.AppAdd {
		return addition(name)
	}
	return &abi.Request{Version: abi.Version, Entrypoint: e, App: name}, nil
}

// addition returns the request of app/add for an app of the pod.
func addition(name string) (*abi.Request, error) {
	o, err := readOptions()
	if err != nil {
		return nil, err
	}
	m, err := podmanifest.Read()
	if err != nil {
		return nil, err
	}
	a, err := m.Named(name)
	if err != nil {
		return nil, err
	}
	pod, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	r := &abi.Request{
		Version: abi.Version, Entrypoint: abi.AppAdd, App: name, Rootfs: filepath.Join(pod, podmanifest.Stage2, name, "rootfs"),
	}
	s, err := spec(a, o, r.Rootfs)
	if err != nil {
		return nil, fmt.Errorf("app %s: %w", name, err)
	}
	shown, err := m.Shown(a)
	if err == nil {
		var names []podmanifest.Shown
		names, err = podmanifest.NameFiles(o.Names, r.Rootfs)
		shown = append(names, shown...) // a volume of the same path takes precedence
	}
	if err != nil {
		return nil, fmt.Errorf("app %s: %w", name, err)
	}
	for _, of := range shown {
		if err := mount(s, pod, of); err != nil {
			return nil, fmt.Errorf("app %s: %w", name, err)
		}
	}
	if r.Cgroup, err = ownCgroup(); err != nil {
		return nil, err
	}
	r.Spec, err = json.Marshal(s)
	return r, err
}

// ownCgroup returns the version 2 cgroup of this process, in which apps run, too. Cgroups
// of version 1 are inherited and need not be named.
func ownCgroup() (*abi.Cgroup, error) {
	const root = "/sys/fs/cgroup"
	var st unix.Statfs_t
	if unix.Statfs(root, &st) != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil, nil
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	path, _ := strings.CutPrefix(strings.TrimSpace(string(text)), "0::")
	return &abi.Cgroup{Version: 2, Dirs: []string{filepath.Join(root, path)}}, nil
}

// enter returns the request for a further program. As in rkt, the program runs as root, in
// the root directory, with the app's environment.
func enter(args []string) (*abi.Request, error) {
	name, command := "", []string(nil)
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--appname="); ok {
			name = value
		}
		if arg == "--" {
			command = args[i+1:]
			break
		}
	}
	if name == "" || len(command) == 0 {
		return nil, fmt.Errorf("usage: enter --pid=PID --appname=APP -- COMMAND")
	}
	env, err := podmanifest.EnterEnv(name)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(&specs.Process{Args: command, Env: env, Cwd: "/"})
	return &abi.Request{
		Version: abi.Version, Entrypoint: abi.Enter, App: name, Exec: fmt.Sprintf("enter-%d", os.Getpid()), Process: raw,
	}, err
}
