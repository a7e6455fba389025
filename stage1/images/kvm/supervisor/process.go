package supervisor

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// lastWords is how long the machine may be silent on an output of a process that has ended.
// The output then ends.
const lastWords = 10 * time.Second

// execsTime is how long execs may run on after their app has ended. Stage 0 waits for five
// seconds.
const execsTime = 3 * time.Second

// process is an app's first process, or an exec's, in the machine, with its proxy on the host.
type process struct {
	s       *Supervisor
	app     *app
	exec    string
	proxy   *proc.Child
	release *os.File // ends the proxy when it is closed
	inside  int      // pid in the machine; guarded by Supervisor.mu
	streams []*channel.Stream
	files   []*os.File // the host's ends of the streams, in the same order; both nil for /dev/null
	carried sync.WaitGroup

	killed sync.Once
	finish sync.Once
	over   atomic.Bool   // the process has ended
	ended  chan struct{} // closed when its end is recorded

	mu        sync.Mutex
	committed bool
	early     *abi.Status // the end, if it came before commit
	silent    bool        // outputs end with the next silence of lastWords
}

// newProcess makes the proxy and the streams of a process that is yet to be made.
func (s *Supervisor) newProcess(ctx context.Context, c *serve.Asked, a *app) (_ *process, err error) {
	p := &process{s: s, app: a, exec: c.Exec, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			p.drop()
		}
	}()
	var tty *terminal
	if c.Terminal {
		if tty, err = newTerminal(c.Request); err != nil {
			return nil, err
		}
		defer tty.close()
		p.files = []*os.File{tty.take()}
	} else {
		for fd, f := range c.Stdio {
			if f == nil {
				return nil, fmt.Errorf("%s: descriptor %d is not open", c.Entrypoint, fd)
			}
			if isNull(f) {
				p.files = append(p.files, nil)
				continue
			}
			own, err := proc.Duplicate(f) // the server closes f
			if err != nil {
				return nil, err
			}
			p.files = append(p.files, own)
		}
	}
	for _, f := range p.files {
		if f == nil {
			p.streams = append(p.streams, nil)
			continue
		}
		stream, err := s.Session.Open(ctx, channel.Data, nil)
		if err != nil {
			return nil, err
		}
		p.streams = append(p.streams, stream)
	}
	root, err := a.proxyRoot(c.Exec)
	if err != nil {
		return nil, fmt.Errorf("the root of the proxy of app %s: %w", a.name, err)
	}
	defer proc.CloseFiles(root)
	if p.proxy, p.release, err = s.startProxy(ctx, c.Cgroup, root, tty); err != nil {
		return nil, fmt.Errorf("start the proxy of app %s: %w", a.name, err)
	}
	if tty != nil {
		if err = tty.send(c.ConsoleSocket); err != nil {
			return nil, err
		}
		sizes := tty.sizes()
		p.carried.Go(func() { p.followSize(sizes) })
	}
	p.carry()
	return p, nil
}

// numbers returns the numbers of the streams, for the header of the call.
func (p *process) numbers() (n []uint32) {
	for _, s := range p.streams {
		if s == nil {
			n = append(n, channel.Null)
			continue
		}
		n = append(n, s.Number())
	}
	return n
}

// commit makes the process known: from now on its end is recorded and announced. It returns
// the ready line of the proxy.
func (p *process) commit() abi.Ready {
	ready := abi.Ready{PID: p.proxy.PID(), StartTime: p.proxy.StartTime(), Recorder: abi.RecorderStage1}
	p.mu.Lock()
	p.committed = true
	early := p.early
	p.mu.Unlock()
	if early != nil {
		p.end(*early)
	}
	// The end of a proxy that was killed is the end of its process: record it before the
	// proxy is reaped.
	p.proxy.Decide(func(e proc.Exit) {
		if !p.hasEnded() {
			p.kill()
		}
		p.end(abi.Status{Code: proc.KilledCode, Signal: int(unix.SIGKILL), Time: time.Now()})
	}, nil)
	return ready
}

// kill has the machine kill the process, whose proxy was killed. It does not wait.
func (p *process) kill() {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, _ = p.s.ask(ctx, channel.Header{Call: p.killing()}, nil)
	}()
}

// killTime is how long a process may live in the machine after SIGKILL was sent to it. Stage 0 and its clients wait for
// the end, which only the machine can tell.
const killTime = 10 * time.Second

// mustEnd ends the process with 137 after killTime, unless the machine has told its end by then.
func (p *process) mustEnd() {
	if p.hasEnded() {
		return
	}
	p.killed.Do(func() {
		time.AfterFunc(p.s.killTime, func() {
			if !p.hasEnded() {
				fmt.Fprintf(p.s.Log, "%s has not ended %s after SIGKILL: it counts as ended\n", p, p.s.killTime)
				p.end(abi.Status{Code: proc.KilledCode, Signal: int(unix.SIGKILL), Time: time.Now()})
			}
		})
	})
}

// killing is the call that kills the process.
func (p *process) killing() *abi.Request {
	return &abi.Request{Version: abi.Version, Entrypoint: abi.AppSignal, App: p.app.name, Exec: p.exec, Signal: int(unix.SIGKILL), All: p.exec == ""}
}

// hasEnded reports whether the process has ended, or does not exist.
func (p *process) hasEnded() bool { return p == nil || p.over.Load() }

// end records and announces the end of the process, and then ends its proxy. Only the first
// end counts.
func (p *process) end(status abi.Status) {
	p.mu.Lock()
	if !p.committed {
		if p.early == nil {
			p.early = &status
		}
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	p.finish.Do(func() { p.record(status) })
}

func (p *process) record(status abi.Status) {
	p.over.Store(true) // stage 0 may call as soon as it has read the record
	s := p.s
	s.mu.Lock()
	var execs []*process
	if p.exec != "" {
		delete(p.app.execs, p.exec)
	} else {
		for _, e := range p.app.execs {
			execs = append(execs, e)
		}
	}
	s.mu.Unlock()
	if p.exec == "" || !s.Request.NoticeWords {
		if err := abi.WriteStatus(abi.StatusDir, p.app.name, p.exec, status); err != nil {
			fmt.Fprintf(s.Log, "record the end of %s: %v\n", p, err)
		}
	}
	notice := abi.Notice{App: p.app.name, Exec: p.exec}
	if s.Request.NoticeWords {
		notice.Status = &status
	}
	close(p.ended)
	_, _ = s.Notices.Write(notice.Format())
	p.hush()
	_ = p.release.Close()
	if len(execs) > 0 {
		time.AfterFunc(execsTime, func() {
			for _, e := range execs {
				e.end(abi.Status{Code: proc.KilledCode, Signal: int(unix.SIGKILL), Time: time.Now()})
			}
		})
	}
}

func (p *process) String() string {
	if p.exec != "" {
		return "exec " + p.exec + " of app " + p.app.name
	}
	return "app " + p.app.name
}

// drop undoes a process that was not committed.
func (p *process) drop() {
	if p.release != nil {
		p.release.Close()
	}
	if p.proxy != nil {
		p.proxy.Drop()
	}
	p.closeStreams()
}

// closeStreams ends all streams at once.
func (p *process) closeStreams() {
	for _, s := range p.streams {
		if s != nil {
			s.Expire()
			_ = s.Close()
		}
	}
	for _, f := range p.files {
		if f != nil {
			_ = f.Close()
		}
	}
	p.carried.Wait()
}

// isNull reports whether a file is /dev/null. A process in the machine then gets the machine's.
func isNull(f *os.File) bool {
	var st unix.Stat_t
	err := proc.Control(f, func(fd int) error { return unix.Fstat(fd, &st) })
	return err == nil && proc.IsNull(&st)
}
