package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seqpacket"
)

// Errors with an exit code of their own.
var (
	errUnknown     = errors.New("unknown app or exec, or it has ended")
	errState       = errors.New("the app is in another state")
	errUnsupported = errors.New("the machine cannot do that")
)

func codeOf(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUnknown):
		return abi.ExitNotFound
	case errors.Is(err, errState):
		return abi.ExitFailedPrecondition
	case errors.Is(err, errUnsupported):
		return abi.ExitNotImplemented
	}
	return 1
}

// machine runs the apps of a pod.
type machine struct {
	words   bool // notices may say how a process has ended
	notices *os.File

	mu   sync.Mutex
	apps map[string]*app
}

// app is a container in the machine. Fields below mu are guarded by the machine's.
type app struct {
	m     *machine
	name  string
	root  string
	added chan struct{} // closed when its app/add has ended
	pause sync.RWMutex  // locked while the app is paused

	memory, limit uint64 // bytes
	pids          uint64 // limit
	oomKills      uint64
	cpu           time.Duration
	paused        bool
	processes     []*process // the first one is the app's; those that have ended stay
}

// tell writes a request to a file for the tests, which read the last request of each
// entrypoint. They wait for the file, so that it appears with all its text.
func tell(r *abi.Request) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	dir := filepath.Join(rootfs, "rkt")
	f, err := os.CreateTemp(dir, ".told-") // calls come at the same time
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, "machine-"+strings.ReplaceAll(string(r.Entrypoint), "/", "-")))
}

// run is the supervisor. It returns when the pod has ended.
func run(r *abi.Request) error {
	signal.Ignore(unix.SIGHUP, unix.SIGPIPE)
	m := &machine{words: r.NoticeWords, notices: proc.Inherited(abi.EnvNotifyFD), apps: map[string]*app{}}
	lock, ready := proc.Inherited(abi.EnvLockFD), proc.Inherited(abi.EnvReadyFD)
	defer lock.Close()
	if boot, err := time.ParseDuration(r.Annotations["machine/boot"]); err == nil {
		time.Sleep(boot)
	}
	if err := tell(r); err != nil {
		return err
	}
	listener, err := seqpacket.ListenStream(filepath.Join(rootfs, socket))
	if err != nil {
		return err
	}
	stopped := make(chan struct{})
	stop := sync.OnceFunc(func() { close(stopped) })
	server := serve.Server{Dispatch: m.dispatch, Code: codeOf, Log: os.Stderr, Answered: func(c *serve.Asked) {
		if c.Entrypoint == abi.Stop {
			stop()
		}
	}}
	go server.Serve(context.Background(), listener.File)
	fmt.Fprintf(ready, `{"pid":%d}`+"\n", os.Getpid())
	ready.Close()
	<-stopped
	return nil
}

func (m *machine) dispatch(_ context.Context, c *serve.Asked) error {
	m.mu.Lock()
	a := m.apps[c.App]
	m.mu.Unlock()
	switch c.Entrypoint {
	case abi.Stop:
		m.stop()
		return nil
	case abi.Network:
		return tell(c.Request)
	case abi.AppAdd:
		return m.add(c)
	}
	if a != nil {
		<-a.added // its app/add may have been killed half-way
		m.mu.Lock()
		a = m.apps[c.App]
		m.mu.Unlock()
	}
	switch {
	case c.Entrypoint == abi.AppRm:
		return m.remove(a)
	case a == nil:
		return fmt.Errorf("app %s: %w", c.App, errUnknown)
	}
	switch c.Entrypoint {
	case abi.AppStart:
		return a.processes[0].start()
	case abi.AppStop:
		a.kill(proc.KilledCode)
		return nil
	case abi.AppSignal:
		return a.signal(c.Request)
	case abi.AppPause, abi.AppResume:
		a.setPaused(c.Entrypoint == abi.AppPause)
		return nil
	case abi.AppUpdate:
		return a.update(c.Resources)
	case abi.AppStats:
		text, err := json.Marshal(a.stats())
		c.Answer(text)
		return err
	case abi.Enter:
		return a.enter(c)
	}
	return fmt.Errorf("%s: %w", c.Entrypoint, errUnsupported)
}

func (m *machine) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.apps {
		go a.kill(proc.KilledCode)
	}
}

func (m *machine) add(c *serve.Asked) error {
	var spec specs.Spec
	if err := json.Unmarshal(c.Spec, &spec); err != nil {
		return err
	}
	a := &app{m: m, name: c.App, root: c.Rootfs, added: make(chan struct{})}
	defer close(a.added)
	if err := a.limitTo(spec.Linux.Resources); err != nil {
		return err
	}
	if err := tell(c.Request); err != nil {
		return err
	}
	m.mu.Lock()
	m.apps[c.App] = a
	m.mu.Unlock()
	p, err := a.process(c, spec.Process)
	if err == nil && c.Gone() {
		a.kill(proc.KilledCode)
		err = errors.New("the caller has gone")
	}
	if err != nil {
		m.mu.Lock()
		delete(m.apps, c.App)
		m.mu.Unlock()
		return err
	}
	c.Ready(p.ready)
	return nil
}

func (m *machine) remove(a *app) error {
	if a == nil {
		return nil
	}
	if a.processes[0].alive() {
		return fmt.Errorf("app %s: %w", a.name, errState)
	}
	m.mu.Lock()
	delete(m.apps, a.name)
	m.mu.Unlock()
	return nil
}

func (a *app) enter(c *serve.Asked) error {
	if !a.processes[0].alive() {
		return fmt.Errorf("app %s: %w", a.name, errUnknown)
	}
	var process specs.Process
	if err := json.Unmarshal(c.Process, &process); err != nil {
		return err
	}
	p, err := a.process(c, &process)
	if err != nil {
		return err
	}
	if err := p.start(); err != nil {
		return err
	}
	c.Ready(p.ready)
	return nil
}

func (a *app) signal(r *abi.Request) error {
	sig := unix.Signal(r.Signal)
	sent := false
	for _, p := range a.all() {
		if (r.All || p.exec == r.Exec) && p.alive() {
			p.signal(sig)
			sent = true
		}
	}
	if !sent {
		return fmt.Errorf("app %s %s: %w", r.App, r.Exec, errUnknown)
	}
	return nil
}

// all returns the processes of the app.
func (a *app) all() []*process {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	return append([]*process(nil), a.processes...)
}

// kill ends every process of the app.
func (a *app) kill(code int) {
	for _, p := range a.all() {
		p.end(code)
	}
}

func (a *app) setPaused(paused bool) {
	a.m.mu.Lock()
	change := a.paused != paused
	a.paused = paused
	a.m.mu.Unlock()
	switch {
	case change && paused:
		a.pause.Lock()
	case change:
		a.pause.Unlock()
	}
}

// run waits while the app is paused, and counts processor time.
func (a *app) run(d time.Duration) {
	a.pause.RLock()
	defer a.pause.RUnlock()
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	a.cpu += d
}

func (a *app) update(text []byte) error {
	var r specs.LinuxResources
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	return a.limitTo(&r)
}

// limitTo sets the limits that the machine knows.
func (a *app) limitTo(r *specs.LinuxResources) error {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	if r == nil {
		return nil
	}
	if r.Memory != nil && r.Memory.Limit != nil {
		a.limit = uint64(max(*r.Memory.Limit, 0))
	}
	if r.Pids != nil && r.Pids.Limit != nil {
		a.pids = uint64(max(*r.Pids.Limit, 0))
	}
	return nil
}

// eat uses memory. It reports false if the app has none left.
func (a *app) eat(bytes uint64) bool {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	if a.limit > 0 && a.memory+bytes > a.limit {
		a.oomKills++
		_, _ = a.m.notices.Write(abi.Notice{OOM: true, App: a.name}.Format())
		return false
	}
	a.memory += bytes
	return true
}

func (a *app) stats() (s abi.StatsAnswer) {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	s.CPU.Usage = uint64(a.cpu)
	s.Memory = abi.MemoryStats{Usage: a.memory, Limit: a.limit, OOMKills: a.oomKills}
	s.Pids.Limit = a.pids
	for i, p := range a.processes {
		if p.alive() {
			s.Pids.Current++
			s.Processes = append(s.Processes, abi.ProcessStats{PID: i + 1, Exec: p.exec})
		}
	}
	return s
}
