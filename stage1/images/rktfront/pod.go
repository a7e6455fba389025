package rktfront

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/client"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seqpacket"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/rktfront/relay"
)

// pod is the pod whose directory is the working directory.
type pod struct {
	scripts  string // directory of the image's entrypoints
	options  *Options
	children *proc.Children
	relay    *relay.Relay  // between the terminal of run and the app's, if they have any
	holder   *proc.Process // holds the namespaces that the apps share; nil if they share none
	over     chan struct{} // closed when the image's supervisor has ended and all its notices were read

	mu       sync.Mutex
	stopping bool
	running  map[name]*process // apps until they are removed, and execs until they end
}

// runPod is `run`. It returns when the pod is over. The exit code of an app is returned as
// a failure without text.
func runPod(scripts string, args []string, shares bool) error {
	options, err := parseRun(args)
	if err != nil {
		return err
	}
	var lock *os.File
	if fd, err := strconv.Atoi(os.Getenv(abi.EnvLockFD)); err == nil {
		unix.CloseOnExec(fd)
		lock = os.NewFile(uintptr(fd), "lock")
		defer lock.Close()
	}
	sigterm, nothing := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(sigterm, unix.SIGTERM)
	signal.Notify(nothing, unix.SIGPIPE, unix.SIGHUP) // ignored here, but not in programs that this process executes
	if err := proc.SetSubreaper(); err != nil {
		return err
	}
	p := &pod{scripts: scripts, options: options, children: proc.NewChildren(), over: make(chan struct{}), running: map[name]*process{}}
	if err := p.boot(lock, shares); err != nil {
		return err
	}
	listener, err := seqpacket.ListenStream(client.Socket)
	if err != nil {
		return err
	}
	serving, endServing := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	stop := sync.OnceFunc(func() { close(stopped) })
	calls := serve.Server{Dispatch: p.dispatch, Code: codeOf, Log: os.Stderr, Answered: func(c *serve.Asked) {
		if c.Entrypoint == abi.Stop {
			stop()
		}
	}}
	var served sync.WaitGroup
	served.Go(func() { calls.Serve(serving, listener.File) })
	err = p.live(sigterm, stopped)
	_ = p.relay.Close() // the terminal may be closed already
	endServing()
	listener.Close()
	_ = os.Remove(client.Socket)
	served.Wait()
	return errors.Join(err, p.do(p.request(abi.GC, ""))) // for apps that were added during the stop
}

// boot executes the image's `run`, its supervisor, and returns when the pod is ready.
func (p *pod) boot(lock *os.File, shares bool) error {
	if err := os.MkdirAll(front+"/"+directory, 0o755); err != nil {
		return err
	}
	r := p.request(abi.Run, "")
	r.NoticeWords = true
	if shares {
		if err := p.options.share(r); err != nil {
			return err
		}
	}
	ready, readyEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	notices, noticesEnd, err := os.Pipe()
	if err != nil {
		readyEnd.Close()
		return err
	}
	files := []given{{abi.EnvReadyFD, readyEnd}, {abi.EnvLockFD, lock}, {abi.EnvNotifyFD, noticesEnd}}
	c, child, err := p.execute(r, nowhere, files)
	readyEnd.Close()
	noticesEnd.Close()
	if err != nil {
		notices.Close()
		return err
	}
	defer c.close()
	go p.follow(notices, child)
	line, err := bufio.NewReader(ready).ReadBytes('\n')
	if err != nil {
		_ = child.Kill()
		return c.failed(child.Wait())
	}
	leader, err := parseReady(line)
	if err == nil && r.Sandbox != nil {
		p.options.Holder = leader.PID
		if p.holder, err = proc.Open(leader.PID, leader.StartTime); err == nil {
			err = p.options.remember()
		}
	}
	return err
}

// follow reads the notices of the image's supervisor until it has ended.
func (p *pod) follow(notices *os.File, child *proc.Child) {
	defer notices.Close()
	lines := bufio.NewScanner(notices)
	for lines.Scan() {
		n, err := abi.ParseNotice(lines.Text(), time.Now())
		if err != nil || n.Status == nil { // the bundled images send the status
			fmt.Fprintf(os.Stderr, "notice %q of the pod's supervisor: %v\n", lines.Text(), err)
			continue
		}
		if q := p.process(n.App, n.Exec); q != nil {
			<-q.made
			q.ended(*n.Status)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintf(os.Stderr, "the notices of the pod's supervisor cannot be read any more: %v\n", err)
		_ = child.Kill()
	}
	child.Wait()
	for _, q := range p.all() {
		if <-q.made; q.noticed { // no notice of this process has come
			_ = proc.Signal(q.PID, q.StartTime, unix.SIGKILL)
			q.ended(abi.Status(proc.Killed()))
		}
	}
	close(p.over)
}

// live makes the apps of the manifest, tells rkt's tools that the pod runs, and returns
// when the pod is over. The pod ends when these apps, the holder or the image's supervisor
// end. Its exit code is the first one of an app that is not 0.
func (p *pod) live(sigterm <-chan os.Signal, stopped <-chan struct{}) error {
	ended, alone := make(chan int, 1), make(chan struct{})
	apps, err := p.begin()
	if err != nil {
		return errors.Join(err, p.stop(false))
	}
	if len(apps) > 0 {
		go func() { // returns when the apps have ended, or with this process
			code := firstFailure(apps)
			p.relay.Drain(context.Background())
			ended <- code
		}()
	}
	if p.holder != nil {
		go func() { // returns when the holder has ended, or with this process
			_ = p.holder.Wait(context.Background())
			close(alone)
		}()
	}
	over := p.over
	for {
		select {
		case <-stopped:
			return nil
		case <-sigterm:
		case code := <-ended:
			if code != 0 {
				err = &failure{code: code}
			}
		case <-alone:
			if alone = nil; p.isStopping() {
				continue // stop has ended the holder
			}
			err = &failure{1, "the process that holds the pod's namespaces has ended"}
		case <-over:
			if over = nil; p.isStopping() {
				continue
			}
			err = errors.New("the pod's supervisor has ended")
		}
		return errors.Join(err, p.stop(false))
	}
}

// begin makes and starts the apps of the manifest, unless the pod is mutable, and writes the pid
// for `enter`.
func (p *pod) begin() (all []*process, err error) {
	if p.options.Mutable {
		return nil, tell(os.Getpid())
	}
	names, err := apps()
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errors.New("the pod has no app, and is not mutable")
	}
	if p.relay, err = p.options.terminal(len(names)); err != nil {
		return nil, err
	}
	for _, name := range names {
		r, err := addition(name)
		if err == nil {
			err = onTerminal(r, p.relay)
		}
		if err != nil {
			return nil, err
		}
		p.identify(r)
		q, err := p.add(r)
		if err != nil {
			return nil, fmt.Errorf("app %s: %w", name, err)
		}
		all = append(all, q)
	}
	leader := os.Getpid()
	if len(all) == 1 {
		leader = all[0].PID
	}
	if err := tell(leader); err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := p.do(p.request(abi.AppStart, name)); err != nil {
			return nil, fmt.Errorf("app %s: %w", name, err)
		}
	}
	return all, nil
}

// firstFailure waits until all apps have ended, and returns the exit code of the first
// of them that has failed.
func firstFailure(apps []*process) int {
	code := 0
	for _, q := range apps {
		if <-q.done; code == 0 {
			code = q.code
		}
	}
	return code
}

func (p *pod) isStopping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopping
}

// stop ends the image's supervisor and all apps. Without force it returns when their exits
// are recorded.
func (p *pod) stop(force bool) error {
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
	if force {
		return p.do(p.request(abi.Stop, ""), "--force")
	}
	if err := p.do(p.request(abi.Stop, "")); err != nil {
		return err
	}
	<-p.over
	for _, q := range p.all() {
		<-q.done
	}
	return nil
}
