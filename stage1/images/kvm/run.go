package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/supervisor"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/client"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seqpacket"
)

// Files of a pod, relative to its directory. They are removed with it.
const (
	logFile     = "stage1/rootfs/rkt/kvm.log"     // messages for which no caller waits
	consoleFile = "stage1/rootfs/rkt/kvm.console" // what the guest's kernel and agent have printed
	machineDir  = "stage1/rootfs/rkt/kvm.machine"
)

// readyWithin is how long a pod may take until it is ready. It is less than the deadline of `run` in the manifest, so that the
// client gets the reason.
const readyWithin = 4*time.Minute + 30*time.Second

// endsWithin is the time in which a machine ends whose channel has ended.
const endsWithin = time.Second

// cmdline is for the guest's kernel: one that has a fault leaves processes that neither run nor end.
const cmdline = "oops=panic"

// memo remembers whether KVM runs guests, until the host is booted.
const memo = "/run/containerd-shim-rkt/kvm-probe"

// run is the supervisor. It returns the exit code when the pod has ended.
func run() int {
	errorFile, ready := proc.Inherited(abi.EnvErrorFD), proc.Inherited(abi.EnvReadyFD)
	if errorFile == nil {
		errorFile = os.Stderr
	}
	err := servePod(ready, errorFile)
	if err != nil {
		fmt.Fprintln(errorFile, err)
	}
	return serve.CodeOf(err)
}

// servePod returns when the pod has ended: nil after stop, otherwise why.
func servePod(ready, errorFile *os.File) (err error) {
	request, err := readRequest()
	if err != nil {
		return err
	}
	// Do not make an os.File of the lock: the descriptor must stay open until this process ends.
	if fd, err := strconv.Atoi(os.Getenv(abi.EnvLockFD)); err == nil && fd > 2 {
		unix.CloseOnExec(fd)
	}
	signal.Ignore(unix.SIGPIPE, unix.SIGHUP)
	sigterm := make(chan os.Signal, 1)
	signal.Notify(sigterm, unix.SIGTERM)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the supervisor undumpable: %w", err)
	}
	for _, dir := range []string{abi.StatusDir, machineDir} {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	log, err := os.OpenFile(logFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p := &pod{request: request, children: proc.NewChildren(), log: log}
	defer p.close()
	if err := p.boot(sigterm); err != nil {
		return errors.Join(err, p.console.last())
	}
	listener, err := seqpacket.ListenStream(client.Socket)
	if err != nil {
		return err
	}
	fmt.Fprintf(ready, "{\"pid\":%d,\"starttime\":%d}\n", p.leader.PID, p.leader.StartTime)
	ready.Close()
	var serving sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	server := p.supervisor.Server(sync.OnceFunc(func() { close(stopped) }))
	serving.Go(func() { server.Serve(ctx, listener.File) })
	select {
	case <-sigterm: // as when the host shuts down: the machine has cached what its disks do not have
		p.supervisor.Stop(ctx, false)
	case <-stopped:
	case <-p.supervisor.Ended(): // the agent has closed the channel, or has sent what it never sends
		err = errors.Join(errors.New("the machine has ended"), p.supervisor.Why())
	case <-p.machine.Done():
		err = errors.Join(errors.New("the machine has ended"), p.machine.Err())
	}
	if err != nil {
		err = errors.Join(err, p.console.last())
		fmt.Fprintln(log, err)
		fmt.Fprintln(errorFile, err) // stage 0 keeps it for the errors of later calls
	}
	_ = p.session.Close()
	_ = p.machine.Stop(context.Background())
	p.supervisor.EndAll()
	cancel()
	listener.Close()
	_ = os.Remove(client.Socket)
	serving.Wait()
	return err
}

func readRequest() (*abi.Request, error) {
	text, err := os.ReadFile(os.Getenv(abi.EnvRequest))
	if err != nil {
		return nil, fmt.Errorf("read the request of run: %w", err)
	}
	r := &abi.Request{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("the request of run: %w", err)
	}
	if r.Version != abi.Version {
		return nil, serve.Unsupported("the request of run: version %d, want %d", r.Version, abi.Version)
	}
	return r, nil
}

var errStopping = errors.New("the pod is being stopped")

// pod is the pod while run serves it.
type pod struct {
	request    *abi.Request
	children   *proc.Children
	log        *os.File
	console    *console
	cgroup     machineCgroup
	machine    machine.Machine
	port       *os.File // of the channel
	session    *channel.Session
	network    *supervisor.Network
	share      *supervisor.Share
	supervisor *supervisor.Supervisor
	leader     abi.Ready // the process that stands for the pod
}

// boot boots the machine, and returns when its agent is ready. A signal on sigterm ends it.
func (p *pod) boot(sigterm <-chan os.Signal) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	ctx, expire := context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("the pod is not ready after %s", readyWithin))
	defer expire()
	booted := make(chan struct{})
	defer close(booted)
	go func() {
		select {
		case <-sigterm:
			cancel(errStopping)
		case <-booted:
		}
	}()
	image, err := os.Executable()
	if err != nil {
		return err
	}
	image = filepath.Dir(image)
	if err := machine.Supported(); err != nil {
		return serve.Unsupported("%v", err)
	}
	settings, err := readSettings(filepath.Join(image, imageSettings), nodeSettings)
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	probe := machine.Probe{
		Kernel: settings.Kernel, Modules: settings.Modules, KernelSum: settings.KernelSum, ModulesSum: settings.ModulesSum,
		Cmdline: cmdline, Dir: filepath.Join(dir, machineDir), Children: p.children, Memo: memo,
	}
	sandbox, err := supervisor.NewSandbox(p.request)
	if err != nil {
		return err
	}
	host, err := hostSize()
	if err != nil {
		return err
	}
	sizes, err := settings.sizes(host, p.request.Annotations, p.request.Resources)
	if err != nil {
		return err
	}
	board, err := settings.machineType(p.request.Annotations)
	if err != nil {
		return err
	}
	if board == machine.MicroVM {
		sizes = sizes.Fix()
	}
	if p.network, err = supervisor.NewNetwork(p.request.Netns); err != nil {
		return err
	}
	if p.share, err = supervisor.NewShare(); err != nil {
		return err
	}
	if err = p.share.CheckSpec(p.request); err != nil {
		return err
	}
	if err = probe.CheckFiles(); err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return err
	}
	p.port = os.NewFile(uintptr(pair[0]), "the channel")
	if p.console, err = newConsole(consoleFile); err != nil {
		return err
	}
	if p.cgroup, err = newMachineCgroup(p.request.PodCgroup, p.request.Pod); err != nil {
		return err
	}
	config := machine.Config{
		Type:   board,
		Kernel: settings.Kernel, Modules: settings.Modules, Init: filepath.Join(image, "agent"),
		KernelSum: settings.KernelSum, ModulesSum: settings.ModulesSum,
		Cmdline: cmdline,
		MaxCPUs: sizes.Max.CPUs, MaxMemory: sizes.Max.Memory,
		Channel: os.NewFile(uintptr(pair[1]), "the channel"), Console: p.console.input,
		Dir: filepath.Join(dir, machineDir), Children: p.children, Cgroup: p.cgroup.dirs,
		Booted: p.awaitSleep, Log: p.log,
	}
	var why error
	if config.Accel, why, err = probe.Choose(ctx, machine.Accel(settings.Accel)); err != nil {
		proc.CloseFiles(config.Channel, config.Console)
		return err
	}
	if why != nil {
		fmt.Fprintf(p.log, "the machine is emulated: %v\n", why)
	}
	if config.Shares, err = p.shares(dir); err != nil {
		proc.CloseFiles(config.Channel, config.Console)
		return err
	}
	switch {
	case board == machine.MicroVM:
		config.NICs = p.network.NICs()
	case config.Accel == machine.TCG && settings.saves(sizes.Base):
		config.Saved = settings.SavedMachines
		sizes.Boot = sizes.Base // the machine grows when it has its apps
	}
	config.CPUs, config.Memory = sizes.Boot.CPUs, sizes.Boot.Memory
	if p.machine, err = machine.Boot(ctx, config); err != nil {
		return err
	}
	go func() { // a machine that ends while it boots ends the wait for its agent
		select {
		case <-p.machine.Done():
			cancel(errors.Join(errors.New("the machine has ended"), p.machine.Err()))
		case <-booted:
		}
	}()
	if err = channel.WakeGuest(p.port); err == nil {
		p.session, err = channel.Host(p.port)
	}
	if err == nil {
		p.supervisor, err = supervisor.New(ctx, supervisor.Config{
			Session: p.session, Children: p.children, Notices: proc.Inherited(abi.EnvNotifyFD),
			Request: p.request, Sandbox: sandbox, Share: p.share, Log: p.log,
			Network: p.network, NICs: p.machine, Disks: p.machine, Resizer: p.machine, Sizes: sizes,
		})
	}
	if err == nil {
		p.leader, err = p.supervisor.Leader(ctx)
		return err
	}
	// The channel of a machine that has ended ends before its process is reaped.
	select {
	case <-p.machine.Done():
		err = errors.Join(err, p.machine.Err())
	case <-time.After(endsWithin):
	}
	unanswered := p.session == nil || errors.Is(err, supervisor.ErrNoAgent)
	if unanswered && !errors.Is(context.Cause(ctx), errStopping) {
		err = errors.Join(err, p.machine.Forget())
	}
	return err
}

// awaitSleep waits until the VM has booted.
func (p *pod) awaitSleep(ctx context.Context) error {
	if err := channel.AwaitSleep(ctx, p.port); err != nil {
		return fmt.Errorf("%w%s", err, proc.Busy())
	}
	return nil
}

// shares returns the directories that the machine has of the pod's directory.
func (p *pod) shares(dir string) ([]machine.Share, error) {
	roots, err := p.share.Tree(supervisor.Roots)
	if err != nil {
		return nil, err
	}
	volumes, err := p.share.Tree(supervisor.Volumes)
	if err != nil {
		roots.Close()
		return nil, err
	}
	dir = filepath.Join(dir, supervisor.Shared)
	return []machine.Share{
		// Only the app itself is expected to change its root.
		{Tag: channel.RootsTag, Dir: filepath.Join(dir, supervisor.Roots), Tree: roots, Cache: "always", Timeout: time.Second},
		// Others change volumes. With any timeout, a file that has grown ends for a reader where it ended before.
		{Tag: channel.ShareTag, Dir: filepath.Join(dir, supervisor.Volumes), Tree: volumes},
	}, nil
}

// close ends what boot has begun.
func (p *pod) close() {
	if p.machine != nil {
		_ = p.machine.Stop(context.Background())
	}
	if p.session != nil {
		_ = p.session.Close()
	}
	proc.CloseFiles(p.port)
	if p.supervisor != nil {
		p.supervisor.EndAll() // a proxy that is left would be waited for
	}
	if p.network != nil {
		p.network.Close()
	}
	if p.share != nil {
		p.share.Close()
	}
	if p.console != nil {
		p.console.close()
	}
	_ = p.children.Close(context.Background())
	p.cgroup.remove()
}
