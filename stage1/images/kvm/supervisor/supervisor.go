package supervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/proc/rest"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// Config is what a supervisor works with. The working directory is the pod's.
type Config struct {
	Session  *channel.Session // to the agent
	Children *proc.Children
	Notices  *os.File // RKT_NOTIFY_FD
	Request  *abi.Request
	Sandbox  *Sandbox // nil if the pod is not one of the Sandbox service
	Share    *Share
	Network  *Network
	NICs     NICs
	Resizer  Resizer
	Sizes    Sizes
	Disks    Disks
	Log      io.Writer // for messages for which no caller waits
}

// Supervisor serves the calls of one pod.
type Supervisor struct {
	Config
	hello *channel.Stream
	// ctx ends when the pod is stopped, and the hooks with it.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// ended is closed when the connection to the agent has ended.
	ended    chan struct{}
	killTime time.Duration // shorter in tests

	// plugging has room for one. The call that has the turn may use volumes.
	plugging chan struct{}
	volumes  map[uint64]*volumeDisk // by the number of the device on the host

	sizing chan struct{} // has room for one
	size   Size          // of the machine, as far as it is known

	mu       sync.Mutex
	stopping bool
	why      error // why the machine is given up
	apps     map[string]*app
	disks    int            // that were added, for their serial numbers
	making   sync.WaitGroup // calls that make a process; grows while mu is held and stopping is false
}

// ErrNoAgent is an error of a machine whose agent does not answer at all.
var ErrNoAgent = errors.New("wait for the agent")

// New waits for the agent, and has it start the supervisor in the machine.
func New(ctx context.Context, c Config) (*Supervisor, error) {
	s := &Supervisor{Config: c, ended: make(chan struct{}), killTime: killTime, plugging: make(chan struct{}, 1), volumes: map[uint64]*volumeDisk{}, sizing: make(chan struct{}, 1), size: c.Sizes.Boot, apps: map[string]*app{}}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	var err error
	if s.hello, err = c.Session.Open(ctx, channel.Hello, nil); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoAgent, err)
	}
	stop := context.AfterFunc(ctx, s.hello.Expire)
	defer stop()
	r := bufio.NewReader(s.hello)
	word, body, err := channel.Receive(r, maxVersion)
	if err == nil && word != channel.Version {
		err = fmt.Errorf("%w: %.20q in place of a version", channel.ErrMessage, string(word))
	}
	if err == nil && string(body) != channel.ProtocolVersion {
		err = fmt.Errorf("the agent speaks version %q of the channel, want %s", body, channel.ProtocolVersion)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrNoAgent, err), context.Cause(ctx))
	}
	inside := &abi.Request{Version: abi.Version, Entrypoint: abi.Run, Pod: c.Request.Pod, NoticeWords: true}
	h := channel.Header{Run: inside}
	if c.Sandbox != nil {
		if c.Sandbox.users != nil {
			if err := s.Network.own(ctx, s, c.Sandbox.users); err != nil { // no other call uses the network yet
				return nil, err
			}
		}
		inside.Sandbox, h.Sysctl = c.Sandbox.inside, c.Sandbox.sysctl
	}
	leader := 0
	if _, err := s.ask(ctx, h, func(pid int) error { leader = pid; return nil }); err != nil {
		return nil, err
	}
	if leader == 0 {
		return nil, fmt.Errorf("%w: the supervisor in the machine is not ready", channel.ErrMessage)
	}
	if c.Sandbox != nil {
		c.Sandbox.holder = leader
	}
	go s.listen(r)
	go s.keepTime()
	if err := s.follow(ctx); err != nil {
		s.giveUp(err)
		return nil, fmt.Errorf("the machine's network: %w", err)
	}
	return s, nil
}

const maxVersion = 32

// freshMemory is the anonymous memory of `run` with its first app, and memoryGrowth the growth after which
// rest.Memory gives memory back.
const (
	freshMemory  = 2 << 20
	memoryGrowth = 1 << 20
)

// Server answers the calls of stage 0. stopped is called after a stop was answered.
func (s *Supervisor) Server(stopped func()) *serve.Server {
	memory := rest.NewMemory(freshMemory, memoryGrowth)
	return &serve.Server{
		Dispatch: s.dispatch,
		Code:     serve.CodeOf,
		Log:      s.Log,
		Answered: func(c *serve.Asked) {
			memory.Touch()
			if c.Entrypoint == abi.Stop {
				stopped()
			}
		},
	}
}

// Ended is closed when the connection to the agent has ended.
func (s *Supervisor) Ended() <-chan struct{} { return s.ended }

// Why returns why the machine was given up, or nil.
func (s *Supervisor) Why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// giveUp ends the connection to a machine that has sent what no agent sends.
func (s *Supervisor) giveUp(err error) {
	s.mu.Lock()
	if s.why == nil && !s.stopping {
		s.why = err
	}
	s.mu.Unlock()
	_ = s.Session.Close()
}

// maxNotices is how many notices of a machine are heeded in a second. The others wait in the channel, and the agent with
// them: this process has no limit of processor time, and a pod that had none either would have it here.
const maxNotices = 1000

// listen reads the agent's notices until the connection ends.
func (s *Supervisor) listen(r *bufio.Reader) {
	defer close(s.ended)
	begun, heeded := time.Now(), 0
	for {
		if heeded++; heeded > maxNotices {
			select {
			case <-time.After(time.Until(begun.Add(time.Second))):
			case <-s.Session.Done():
			}
			begun, heeded = time.Now(), 1
		}
		word, body, err := channel.Receive(r, channel.MaxNotice)
		if err == nil && word != channel.Notice {
			err = fmt.Errorf("%w: %.20q in place of a notice", channel.ErrMessage, string(word))
		}
		if err == nil {
			err = s.heed(body)
		}
		if err != nil {
			s.giveUp(fmt.Errorf("the machine: %w", err))
			return
		}
	}
}

func (s *Supervisor) dispatch(ctx context.Context, c *serve.Asked) error {
	if c.Version != abi.Version {
		return serve.Unsupported("the request of %s: version %d, want %d", c.Entrypoint, c.Version, abi.Version)
	}
	switch c.Entrypoint {
	case abi.Stop:
		s.Stop(ctx, c.Force) // the machine ends after the answer
		return nil
	case abi.AppAdd:
		return s.add(ctx, c)
	case abi.Network:
		return s.follow(ctx)
	}
	a, err := s.app(ctx, c.App)
	switch {
	case c.Entrypoint == abi.AppRm && a == nil:
		return nil
	case err != nil:
		return err
	}
	switch c.Entrypoint {
	case abi.AppRm:
		return s.remove(ctx, a, c.Request)
	case abi.Enter:
		return s.enter(ctx, a, c)
	case abi.AppStop:
		return s.stopApp(ctx, a, c.Request)
	case abi.AppStart:
		return s.start(ctx, a, c.Request)
	case abi.AppSignal:
		return s.signal(ctx, a, c.Request)
	case abi.AppPause, abi.AppResume:
		return s.pass(ctx, c.Request)
	case abi.AppUpdate:
		return s.update(ctx, a, c.Request)
	case abi.AppStats:
		text, err := s.ask(ctx, channel.Header{Call: inside(c.Request)}, nil)
		if err != nil {
			return err
		}
		if text, err = channel.ParseStats(text); err == nil {
			c.Answer(text)
		}
		return err
	}
	return serve.Unsupported("entrypoint %s is not supported", c.Entrypoint)
}

// signal serves app/signal.
func (s *Supervisor) signal(ctx context.Context, a *app, r *abi.Request) error {
	p := s.running(a, r.Exec)
	if !r.All && p.hasEnded() {
		return serve.NotFound("app %s %s: process already finished", r.App, r.Exec)
	}
	err := s.pass(ctx, r)
	if r.Signal == int(unix.SIGKILL) && (err == nil || serve.CodeOf(err) == abi.ExitNotFound) {
		p.mustEnd()
	}
	return err
}

// pass makes a call of stage 0 in the machine.
func (s *Supervisor) pass(ctx context.Context, r *abi.Request) error {
	_, err := s.ask(ctx, channel.Header{Call: inside(r)}, nil)
	return err
}

// running returns the process of an app or exec, or nil.
func (s *Supervisor) running(a *app, exec string) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if exec == "" {
		return a.main
	}
	return a.execs[exec]
}

// inside returns a request for the guest, which needs no file of the host.
func inside(r *abi.Request) *abi.Request {
	g := *r
	g.Cgroup, g.ConsoleSocket, g.Bundle, g.Traceparent = nil, "", "/", ""
	g.Mounts = nil
	return &g
}
