package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/supervisor"
)

// agent serves the calls of one machine.
type agent struct {
	session  *channel.Session
	pod      *supervisor.Supervisor
	notices  chan []byte // lines for the host
	streams  *streams
	network  *guestNetwork
	sizing   chan struct{} // has room for one
	mounting chan struct{} // has room for one
	end      chan struct{} // closed when the host has asked for the end
	once     sync.Once
	ooms     cgroup.OOMWatches // of the apps

	terminals terminals

	mu   sync.Mutex
	apps map[string]*app
}

func newAgent(s *channel.Session) (a *agent, err error) {
	a = &agent{
		session:  s,
		notices:  make(chan []byte, 64),
		streams:  newStreams(),
		network:  &guestNetwork{turn: make(chan struct{}, 1)},
		sizing:   make(chan struct{}, 1),
		mounting: make(chan struct{}, 1),
		end:      make(chan struct{}),
		apps:     map[string]*app{},
	}
	a.pod, err = a.supervisor()
	return a, err
}

// serve answers the host until it closes the channel or asks for the end, or until the pod's holder has ended. Whatever
// it was, nothing that the apps' disks have cached is lost.
func (a *agent) serve() {
	go func() {
		defer a.stop()
		for {
			s, err := a.session.Accept()
			if err != nil {
				return
			}
			go a.converse(a.pod.Context(), s)
		}
	}()
	<-a.end
	if err := a.leave(); err != nil {
		fmt.Fprintf(os.Stderr, "agent: %v\n", err)
	}
}

// leave ends all processes, and writes back and unmounts the disks of apps. A block device without a filesystem is written
// back by the kernel when its last process has ended. leave may be called again.
func (a *agent) leave() error {
	a.pod.Stop(false)
	return unmountRoots()
}

func (a *agent) stop() { a.once.Do(func() { close(a.end) }) }

// helloTime is how long the host may take to send the first message of a stream, which it does as it opens it.
const helloTime = 2 * time.Minute

// converse serves one stream.
func (a *agent) converse(ctx context.Context, s *channel.Stream) {
	r := bufio.NewReader(s)
	_ = s.SetReadDeadline(time.Now().Add(helloTime))
	word, body, err := channel.Receive(r, channel.MaxCall)
	if err == nil {
		err = s.SetReadDeadline(time.Time{})
	}
	if err != nil {
		_ = s.Close()
		return
	}
	switch word {
	case channel.Hello:
		a.tell(s)
	case channel.Data:
		a.streams.put(s.Number(), data{s, r})
	case channel.Connect:
		a.connect(ctx, data{s, r}, string(body))
	case channel.Call:
		a.answer(ctx, s, r, body)
	default:
		_ = s.Close()
	}
}

// tell sends the agent's version, and then its notices.
func (a *agent) tell(s *channel.Stream) {
	if err := channel.Send(s, channel.Version, []byte(channel.ProtocolVersion)); err != nil {
		return
	}
	for line := range a.notices {
		if err := channel.Send(s, channel.Notice, line); err != nil {
			return
		}
	}
}

// notify queues a notice. It waits while the host does not read.
func (a *agent) notify(n abi.Notice) { a.notices <- n.Format() }

// call is a call of the host.
type call struct {
	channel.Header
	stream  *channel.Stream
	streams []data // of the process that it makes
}

// reply sends an answer. It is no error if the host no longer listens.
func (c *call) reply(word channel.Word, body []byte) { _ = channel.Send(c.stream, word, body) }

// ready reports a process that the call has made.
func (c *call) ready(r abi.Ready) error {
	line, err := plainjson.Encode(r)
	if err == nil {
		c.reply(channel.Ready, line)
	}
	return err
}

// answer serves a call. Its context ends when the host closes its end of the stream.
func (a *agent) answer(ctx context.Context, s *channel.Stream, r *bufio.Reader, body []byte) {
	defer s.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		_, _ = io.Copy(io.Discard, r)
		cancel(errors.New("the host has given up the call"))
	}()
	c := &call{stream: s}
	err := json.Unmarshal(body, &c.Header)
	if err == nil {
		err = a.dispatch(ctx, c)
	}
	if err != nil {
		text := err.Error()
		c.reply(channel.Error, []byte(text[:min(len(text), channel.MaxAnswer)]))
	}
	c.reply(channel.Exit, strconv.AppendInt(nil, int64(serve.CodeOf(err)), 10))
}

func (a *agent) dispatch(ctx context.Context, c *call) error {
	if len(c.Sysctl) > 0 {
		if err := a.network.within(func() error { return setSysctl(c.Sysctl) }); err != nil {
			return err
		}
	}
	switch {
	case c.Run != nil:
		return a.run(c)
	case c.Resize != nil:
		return a.terminals.resize(c.Resize)
	case c.Size != nil:
		return a.changeSize(ctx, c.Size)
	case c.Users != nil:
		return a.makeUsers(ctx, c.Users)
	case c.Network != nil:
		return a.changeNetwork(ctx, c.Network)
	case c.Clock != nil:
		return a.clock(c)
	case c.PowerOff:
		err := a.leave()
		a.stop() // the machine ends when the call is answered
		return err
	case c.Call == nil:
		return errors.New("a call without a request")
	}
	r := c.Call
	switch r.Entrypoint {
	case abi.AppAdd:
		return a.make(ctx, c, a.add)
	case abi.Enter:
		return a.make(ctx, c, a.enter)
	case abi.AppRm:
		return a.remove(ctx, r)
	case abi.AppStop, abi.AppStart:
		return a.pass(ctx, r)
	}
	p, err := a.app(r.App)
	if err != nil {
		return err
	}
	switch r.Entrypoint {
	case abi.AppSignal:
		return a.signal(ctx, p, r)
	case abi.AppPause:
		return p.group.Freeze(ctx)
	case abi.AppResume:
		return p.group.Thaw()
	case abi.AppUpdate:
		return p.update(r.Resources)
	case abi.AppStats:
		text, err := a.stats(p)
		if err == nil {
			c.reply(channel.Answer, text)
		}
		return err
	}
	return serve.Unsupported("entrypoint %s is not supported", r.Entrypoint)
}

// make serves a call that makes a process. It takes the streams of the process first: if the call fails at
// whatever step, they are closed.
func (a *agent) make(ctx context.Context, c *call, serve func(context.Context, *call) error) (err error) {
	if c.streams, err = a.streams.takeAll(ctx, c); err != nil {
		return err
	}
	if err = serve(ctx, c); err != nil {
		closeStreams(c.streams)
	}
	return err
}

// closeAll closes files, some of which may be nil.
func closeAll(files ...*os.File) {
	for _, f := range files {
		f.Close()
	}
}
