package rktabi

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable/launch"
)

// enterexec is a program in the pods of rkt's images with systemd. `enter` executes it, and
// it changes to a directory, an environment and a user before it executes a program.
const enterexec = "/enterexec"

// adapter is a stage1 of the rkt ABI, for one pod.
type adapter struct {
	*immutable.InSpace
	execs sync.Map // the *proc.Child of each running call of `enter`, by execKey
}

func execKey(c pod.Call) string { return c.Request.App + "/" + c.Request.Exec }

// enter executes `enter` as rkt did, but in the app's cgroup, because rkt's programs enter
// only namespaces. The process of `enter` stays, and ends when its program ends, with the
// same exit.
func (s *adapter) enter(ctx context.Context, c pod.Call, stdio [3]*os.File, app *specs.Spec) (*pod.Process, error) {
	k, err := s.NewCall(c, abi.Enter)
	if err != nil {
		return nil, err
	}
	k.Trace(ctx)
	if err := s.enterArguments(k, app.Process); err != nil {
		return nil, err
	}
	streams, err := immutable.OpenStreams(stdio, c.Request.Terminal, nil)
	if err != nil {
		return nil, err
	}
	defer streams.Close()
	if err := s.runEnter(ctx, k, streams); err != nil {
		return nil, k.Fail(err)
	}
	start, err := proc.StartTime(k.Child.PID())
	if err != nil {
		return nil, k.Fail(err)
	}
	k.Release()
	k.Journal(journal.Ready)
	s.execs.Store(execKey(c), k.Child)
	ended := make(chan abi.Status, 1)
	go func() {
		<-k.Ended
		s.execs.Delete(execKey(c))
		k.Leave()
		ended <- k.Exit
	}()
	return &pod.Process{PID: k.Child.PID(), StartTime: start, Recorder: pod.RecordedByCall, Console: streams.Take(), Ended: ended}, nil
}

func (s *adapter) runEnter(ctx context.Context, k *stage1.Call, streams *immutable.Streams) error {
	ctx, cancel := k.Limit(ctx)
	defer cancel()
	control, err := launch.NewControl()
	if err != nil {
		return err
	}
	defer control.Close()
	if err := immutable.StartLauncher(k, control); err != nil {
		return err
	}
	join := launch.Join{Terminal: k.Request.Terminal}
	if k.Request.Cgroup != nil {
		join.Cgroups, join.Unified = k.Request.Cgroup.Dirs, k.Request.Cgroup.Unified
	}
	if err := control.Join(ctx, join, streams.Files); err != nil {
		return err
	}
	path := s.EntrypointIn(k.Dir, abi.Enter)
	env, err := s.Dialect.Environment(k)
	if err != nil {
		return err
	}
	env = append(env, "TERM=xterm")
	if err := control.Exec(ctx, launch.Exec{Argv: append([]string{path}, k.Args...), Env: env}); err != nil {
		return stage1.ExplainExec(path, err)
	}
	return nil
}

// enterArguments sets the arguments of `enter`. Without enterexec, an image executes each
// program with the app's user, directory and environment, so an exec that asks for others
// is refused.
func (s *adapter) enterArguments(k *stage1.Call, app *specs.Process) error {
	p := &k.Process.OCI
	root := filepath.Join(k.Dir, stage1.Stage2Dir, k.Request.App, "rootfs")
	var program string
	err := s.Within(func() (err error) {
		program, err = immutable.FindProgram(root, p)
		return err
	})
	if err != nil {
		return s.Refused(err.Error(), err)
	}
	if _, err := os.Lstat(filepath.Join(s.Rootfs(), enterexec)); err == nil {
		return s.enterExactly(k, p)
	}
	for _, f := range []struct {
		pointer string
		same    bool
	}{
		{"/process/user", reflect.DeepEqual(p.User.AdditionalGids, app.User.AdditionalGids) && p.User.UID == app.User.UID && p.User.GID == app.User.GID},
		{"/process/cwd", p.Cwd == app.Cwd || p.Cwd == ""},
		{"/process/env", sameEnvironment(p.Env, app.Env)},
		{"/process/capabilities", p.Capabilities == nil || reflect.DeepEqual(p.Capabilities, app.Capabilities)},
		{"/process/noNewPrivileges", p.NoNewPrivileges == app.NoNewPrivileges},
	} {
		if !f.same && !s.MayIgnore(f.pointer) {
			return s.Refused("the exec asks for "+f.pointer+" other than the container's, and its enter cannot be told", errdefs.ErrNotImplemented)
		}
	}
	first := p.Args[0]
	if isFly(s.Image) { // fly ignores PATH
		first = program
	}
	k.Args = append(append(k.Args, first), p.Args[1:]...)
	return nil
}

// sameEnvironment compares environments without TERM, which clients add for a terminal.
func sameEnvironment(a, b []string) bool {
	values := func(env []string) map[string]string {
		m := map[string]string{}
		for _, kv := range env {
			if name, value, _ := strings.Cut(kv, "="); name != "TERM" {
				m[name] = value
			}
		}
		return m
	}
	return reflect.DeepEqual(values(a), values(b))
}

// enterExactly uses enterexec to give a program the directory, the user and the environment
// of the exec. enterexec drops no capability, so an exec with fewer capabilities is refused
// unless the field is excused.
func (s *adapter) enterExactly(k *stage1.Call, p *specs.Process) error {
	if p.Capabilities != nil && !s.MayIgnore("/process/capabilities") {
		return s.Refused("the exec asks for /process/capabilities, and its enter leaves a program all of them", errdefs.ErrNotImplemented)
	}
	name := "exec-" + k.Request.App + "-" + k.Request.Exec
	err := stage1.InTree(k.Dir, func(tree *os.Root) error {
		return stage1.WriteInTree(tree, filepath.Join(stage1.RktInTree, "env", name), []byte(strings.Join(append(p.Env, ""), "\n")), 0o644)
	})
	if err != nil {
		return err
	}
	groups := []string{strconv.Itoa(int(p.User.GID))}
	for _, gid := range p.User.AdditionalGids {
		groups = append(groups, strconv.Itoa(int(gid)))
	}
	k.Args = append([]string{
		"--pid=" + strconv.Itoa(k.Leader), "--", enterexec, "/opt/stage2/" + k.Request.App + "/rootfs", cmp.Or(p.Cwd, "/"), "/rkt/env/" + name,
		strconv.Itoa(int(p.User.UID)), strings.Join(groups, ","), "-e", "--",
	}, p.Args...)
	return nil
}

// signalExec signals the program of an exec, not the `enter` that waits for it. Before
// `enter` has executed the program, `enter` and all its descendants get the signal.
func (s *adapter) signalExec(c pod.Call) error {
	v, ok := s.execs.Load(execKey(c))
	if !ok {
		return proc.ErrGone
	}
	enter, sig := v.(*proc.Child), syscall.Signal(c.Request.Signal)
	if pid := entered(enter.PID(), s.EntrypointIn(c.Dir, abi.Enter)); pid != 0 {
		return signalPID(pid, sig)
	}
	return enter.SignalGroup(sig)
}
