package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/containerd/console"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/appimage"
	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/shim/debug"
)

// Limits of a debug app, unless options set others.
const (
	debugMemory = 256 // MiB
	debugPIDs   = 256
)

// debugging is a call of rktctl debug.
type debugging struct {
	execution
	image        string
	target       string
	memory, pids int64
	config       *appimage.Config
}

func newDebug(e *Env) *cobra.Command {
	cmd := verb("debug", "debug POD --image IMAGE [OPTIONS] [-- COMMAND...]", "look at a running app with the programs of another image", func(cmd *cobra.Command, args []string) error {
		if len(args) < 1 {
			return errUsage(cmd, "one POD, and not 0")
		}
		return nil
	})
	x := &debugging{execution: execution{env: e}}
	x.flags(cmd)
	cmd.Flags().SetInterspersed(true) // COMMAND is after --
	cmd.Flags().BoolVarP(&x.stdin, "stdin", "i", false, "give the program the standard input")
	cmd.Flags().BoolVarP(&x.terminal, "tty", "t", false, "give the program a terminal; needs --stdin, which has to be a terminal")
	cmd.Flags().StringVar(&x.image, "image", "", "the `IMAGE` with the programs: a path, or an image in containerd's store")
	cmd.Flags().StringVar(&x.target, "target", "", "the `APP` to look at, by its id; not needed if POD names it or has only one")
	cmd.Flags().Int64Var(&x.memory, "memory", debugMemory, "the limit of its memory, in `MiB`")
	cmd.Flags().Int64Var(&x.pids, "pids", debugPIDs, "the limit of its processes, a `NUMBER`")
	x.config = imageConfig(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case x.image == "":
			return errUsage(cmd, "no --image")
		case len(args) > 1 && cmd.ArgsLenAtDash() != 1:
			return errUsage(cmd, "the words after POD are no COMMAND: write -- before it")
		case x.memory < 1 || x.memory > 1<<40 || x.pids < 1:
			return errUsage(cmd, "--memory and --pids have to be positive")
		case x.terminal && (!x.stdin || terminalOf(e) == nil):
			return errUsage(cmd, "--tty needs --stdin, and a terminal there")
		}
		x.args = args[1:]
		return x.do(cmd, args[0])
	}
	return cmd
}

// do debugs the app that the command line names.
func (x *debugging) do(cmd *cobra.Command, word string) (err error) {
	ctx := cmd.Context()
	p, a, err := x.find(cmd, word)
	if err != nil {
		return err
	}
	its, err := targetSpec(a)
	if err != nil {
		return err
	}
	x.config.DataDir = dataDir(x.env)
	if !cmd.Flags().Changed("address") && p.Daemon != "" {
		x.config.Address = p.Daemon
	}
	if !cmd.Flags().Changed("namespace") && p.Daemon != "" {
		x.config.Namespace = p.Namespace
	}
	image, err := appimage.Open(ctx, x.image, *x.config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	if image.Plain() {
		return fmt.Errorf("image %s is a directory, whose files the program could change: name an OCI layout, an archive, an ACI or an image of containerd's", x.image)
	}
	s, err := dial(ctx, p, a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return x.run(cmd, s, a, image, its)
}

// find returns the app to look at.
func (x *debugging) find(cmd *cobra.Command, word string) (*view.Pod, *view.App, error) {
	_, p, a, err := find(x.env, word)
	if err != nil {
		return nil, nil, err
	}
	if x.target != "" {
		if a, err = p.FindApp(x.target); err != nil {
			return nil, nil, err
		}
	}
	if a, err = oneApp(cmd, p, a); err != nil {
		return nil, nil, err
	}
	if a.Debugs != "" {
		return nil, nil, fmt.Errorf("app %s debugs %s, and cannot be debugged itself", a.ID, a.Debugs)
	}
	return p, a, nil
}

// targetSpec returns the spec of the app to look at.
func targetSpec(a *view.App) (*specs.Spec, error) {
	text, err := os.ReadFile(filepath.Join(a.Bundle, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("app %s: %w", a.ID, err)
	}
	var s specs.Spec
	if err := json.Unmarshal(text, &s); err != nil || s.Process == nil || s.Linux == nil {
		return nil, errors.Join(fmt.Errorf("app %s: %s/config.json has no process", a.ID, a.Bundle), err)
	}
	return &s, nil
}

// conversation is the stream between rktctl and the shim.
type conversation struct{ ttrpc.ClientStream }

func (c conversation) send(m debug.Message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return c.SendMsg(&anypb.Any{TypeUrl: debug.Type, Value: text})
}

func (c conversation) receive() (m debug.Message, err error) {
	var a anypb.Any
	if err := c.RecvMsg(&a); err != nil {
		return m, errgrpc.ToNative(err)
	}
	return m, json.Unmarshal(a.Value, &m)
}

// request asks the shim for a debug app.
func (c conversation) request(r *debug.Request) (*debug.Prepared, error) {
	// A shim without the service ends the stream before it reads the request, so its answer
	// counts, and not the error of the send.
	sendErr := c.send(debug.Message{Request: r})
	m, err := c.receive()
	switch {
	case errdefs.IsNotImplemented(err) && strings.Contains(err.Error(), debug.Service):
		return nil, errOldShim
	case err != nil:
		return nil, errors.Join(err, sendErr)
	case m.Prepared == nil:
		return nil, errors.New("the shim has answered with another message than the one that rktctl expects")
	}
	return m.Prepared, nil
}

// errOldShim is the error for a pod whose shim has no debug service. An error of a shim that has
// the service never names it.
var errOldShim = errors.New("the pod was made by an older release, whose shim cannot debug, and which serves the pod until its end: use rktctl exec, or make the pod again")

// run has the shim make the debug app, and waits for its end. The shim removes the app when
// the connection ends.
func (x *debugging) run(cmd *cobra.Command, s *server, a *view.App, image *appimage.Image, its *specs.Spec) (err error) {
	ctx := context.WithoutCancel(cmd.Context()) // an interrupt is passed on to the program, or closes the connection
	fail := func(err error) error { return fmt.Errorf("debug app %s: %w", a.ID, err) }
	st, err := s.client.NewStream(ctx, &ttrpc.StreamDesc{StreamingClient: true, StreamingServer: true}, debug.Service, debug.Stream, nil)
	if err != nil {
		return fail(err)
	}
	c := conversation{st}
	started := make(chan struct{})
	defer context.AfterFunc(cmd.Context(), func() { x.interrupt(c, s, started) })()
	r := &debug.Request{App: a.ID, PID: os.Getpid(), Image: x.image, Digest: image.Digest}
	r.UID, r.Login = loginUser(x.env)
	p, err := c.request(r)
	if err != nil {
		return fail(err)
	}
	start, streams, err := x.prepare(cmd, p, image, its)
	if err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, streams.close()) }()
	if err := c.send(debug.Message{Start: start}); err != nil {
		return fail(err)
	}
	if _, err := c.receive(); err != nil { // Started
		return fail(err)
	}
	close(started)
	control := func(m debug.Control) { _ = c.send(debug.Message{Control: &m}) }
	undo, err := x.takeTerminal(func(w, h uint16) { control(debug.Control{Size: &debug.Size{Width: w, Height: h}}) })
	if err != nil {
		return err
	}
	defer undo()
	streams.copy(func() { control(debug.Control{CloseStdin: true}) })
	m, err := c.receive()
	streams.drain(outputGrace)
	switch {
	case err != nil:
		return fail(fmt.Errorf("the shim has ended the program: %w", err))
	case m.Ended == nil:
		return fail(errors.New("the shim has ended the program"))
	case m.Ended.Code != 0:
		return exitError(m.Ended.Code)
	}
	return nil
}

// interrupt ends the program with SIGTERM if it runs, and closes the connection, with which
// the shim kills and removes the app.
func (x *debugging) interrupt(c conversation, s *server, started <-chan struct{}) {
	select {
	case <-started:
		if c.send(debug.Message{Control: &debug.Control{Signal: int(syscall.SIGTERM)}}) == nil {
			_ = proc.Sleep(context.Background(), killGrace)
		}
	default:
	}
	_ = s.Close()
}

// prepare fills the directory of the debug app.
func (x *debugging) prepare(cmd *cobra.Command, p *debug.Prepared, image *appimage.Image, its *specs.Spec) (*debug.Start, *streams, error) {
	rootfs, err := image.Rootfs(p.Dir)
	if err != nil {
		return nil, nil, err
	}
	spec, err := image.Spec(cmd.Context(), appimage.SpecConfig{ID: p.ID, Exec: x.args, Unconfined: true})
	if err != nil {
		return nil, nil, err
	}
	if err := x.complete(cmd, spec, p, its); err != nil {
		return nil, nil, err
	}
	if uid, gid, mapped := rootOf(spec); mapped {
		if err := rootfs.Give(uid, gid); err != nil {
			return nil, nil, err
		}
	}
	text, err := json.Marshal(spec)
	if err == nil {
		err = os.WriteFile(filepath.Join(p.Dir, "config.json"), text, 0o600)
	}
	if err != nil {
		return nil, nil, err
	}
	// The fifos are in the directory that the shim removes, even if rktctl is killed.
	s := &streams{x: &x.execution, dir: filepath.Join(p.Dir, "streams"), files: map[string]*os.File{}}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, nil, err
	}
	if err := errors.Join(s.make(), s.open()); err != nil {
		return nil, nil, errors.Join(err, s.close())
	}
	start := &debug.Start{Stdin: s.path("stdin"), Stdout: s.path("stdout"), Stderr: s.path("stderr"), Terminal: x.terminal}
	for _, m := range rootfs.Mounts {
		start.Mounts = append(start.Mounts, debug.Mount{Type: m.Type, Source: m.Source, Options: m.Options})
	}
	return start, s, nil
}

// complete gives the spec of the image the namespaces, the user and the privileges of the
// target, and limits of its own.
func (x *debugging) complete(cmd *cobra.Command, s *specs.Spec, p *debug.Prepared, its *specs.Spec) error {
	s.Hostname, s.Domainname = "", ""
	s.Linux.CgroupsPath = p.CgroupsPath
	s.Linux.Namespaces = []specs.LinuxNamespace{{Type: specs.MountNamespace}, {Type: specs.CgroupNamespace}}
	for _, n := range p.Namespaces {
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.LinuxNamespaceType(n.Type), Path: n.Path})
		if n.Type == string(specs.UserNamespace) {
			s.Linux.UIDMappings, s.Linux.GIDMappings = its.Linux.UIDMappings, its.Linux.GIDMappings
		}
	}
	memory := x.memory << 20
	if s.Linux.Resources == nil {
		s.Linux.Resources = &specs.LinuxResources{}
	}
	s.Linux.Resources.Memory = &specs.LinuxMemory{Limit: &memory, Swap: &memory}
	s.Linux.Resources.Pids = &specs.LinuxPids{Limit: &x.pids}
	confine(s, its)
	q := s.Process
	q.Terminal = x.terminal
	if t := terminalOf(x.env); x.terminal && t != nil {
		if c, err := console.ConsoleFromFile(t); err == nil {
			if size, err := c.Size(); err == nil {
				q.ConsoleSize = &specs.Box{Width: uint(size.Width), Height: uint(size.Height)}
			}
		}
		q.Env = append(q.Env, "TERM=xterm")
	}
	if x.cwd != "" {
		q.Cwd = x.cwd
	}
	for _, v := range x.vars {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			return errUsage(cmd, "--env: %q is not NAME=VALUE", v)
		}
		q.Env = append(q.Env, v)
	}
	if x.user == "" {
		return nil
	}
	uid, gid, err := parseUser(x.user)
	if err != nil {
		return errUsage(cmd, "--user: %w", err)
	}
	q.User = specs.User{UID: uid, GID: gid}
	if q.Capabilities != nil {
		of := q.Capabilities.Bounding
		q.Capabilities = &specs.LinuxCapabilities{Bounding: of}
		if uid == 0 {
			q.Capabilities.Effective, q.Capabilities.Permitted = of, of
		}
	}
	return nil
}

// rootOf returns the host's ids of a container's root, and whether the container has a user
// namespace that maps it.
func rootOf(s *specs.Spec) (uid, gid int, mapped bool) {
	host := func(m []specs.LinuxIDMapping) (int, bool) {
		i := slices.IndexFunc(m, func(m specs.LinuxIDMapping) bool { return m.ContainerID == 0 && m.Size > 0 })
		if i < 0 {
			return 0, false
		}
		return int(m[i].HostID), true
	}
	uid, users := host(s.Linux.UIDMappings)
	gid, groups := host(s.Linux.GIDMappings)
	return uid, gid, users && groups
}

// confine gives a spec the privileges of another one: the user and the capabilities, the
// filter of system calls, the labels, and the hidden paths of both.
func confine(s, its *specs.Spec) {
	q, of := s.Process, its.Process
	q.User, q.Capabilities, q.NoNewPrivileges = of.User, of.Capabilities, of.NoNewPrivileges
	q.ApparmorProfile, q.SelinuxLabel = of.ApparmorProfile, of.SelinuxLabel
	q.Rlimits = of.Rlimits
	first := 1000 // the kernel kills it before every app of the pod
	q.OOMScoreAdj = &first
	s.Linux.Seccomp, s.Linux.MountLabel = its.Linux.Seccomp, its.Linux.MountLabel
	union := func(a, b []string) []string {
		all := slices.Concat(a, b)
		slices.Sort(all)
		return slices.Compact(all)
	}
	s.Linux.MaskedPaths = union(s.Linux.MaskedPaths, its.Linux.MaskedPaths)
	s.Linux.ReadonlyPaths = union(s.Linux.ReadonlyPaths, its.Linux.ReadonlyPaths)
}

// parseUser reads UID or UID:GID.
func parseUser(text string) (uid, gid uint32, err error) {
	u, g, _ := strings.Cut(text, ":")
	id := func(s string) uint32 {
		n, parseErr := strconv.ParseUint(s, 10, 32)
		if parseErr != nil {
			err = fmt.Errorf("%q is not UID or UID:GID, as numbers", text)
		}
		return uint32(n)
	}
	uid = id(u)
	if g != "" {
		gid = id(g)
	}
	return uid, gid, err
}

// noLogin is the user of a process that belongs to no login session.
const noLogin = ^uint32(0)

// loginUser returns the user of this login session, which su and sudo do not change, and a
// name for people: the environment may say anything.
func loginUser(e *Env) (uint32, string) {
	name := e.Getenv("SUDO_USER")
	if name == "" {
		name = e.Getenv("USER")
	}
	text, err := os.ReadFile("/proc/self/loginuid")
	if err != nil {
		return noLogin, name
	}
	uid, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return noLogin, name
	}
	return uint32(uid), name
}
