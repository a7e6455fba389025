package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/appimage"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Defaults of commands.
const (
	// DefaultPeriod is the time between SIGTERM and SIGKILL.
	DefaultPeriod = 10 * time.Second
	// killLimit is how long an app may take to end after SIGKILL.
	killLimit = 30 * time.Second
	// LogSize and LogFiles bound the log of an app.
	LogSize  = 10 << 20
	LogFiles = 3
)

// maxName is the longest name of an app.
const maxName = 63

// app is a local pod's app. It need not exist.
type app struct {
	pod  *Pod
	name string
}

func (p *Pod) app(name string) *app { return &app{p, name} }

// bundle returns the app's OCI bundle, which has its record, too.
func (a *app) bundle() string { return a.pod.path(appsDir, a.name) }

// log returns the app's log, which is older than the app if there was one of the same name.
func (a *app) log() string { return a.pod.path(logsDir, a.name+".log") }

// checkName returns an error for a name that an app cannot have. It becomes a part of paths.
func checkName(name string) error {
	ok := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-'
	}
	if name == "" || len(name) > maxName || strings.Trim(name, "-") != name || strings.IndexFunc(name, func(r rune) bool { return !ok(r) }) >= 0 {
		return fmt.Errorf("%q is not the name of an app: small letters, digits and hyphens, at most %d, and no hyphen at the ends: %w", name, maxName, errdefs.ErrInvalidArgument)
	}
	return nil
}

func (a *app) read() (appRecord, error) {
	var r appRecord
	err := readRecord(filepath.Join(a.bundle(), appFile), &r)
	if errdefs.IsDataLoss(err) {
		return appRecord{Version: recordVersion}, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		if _, err = os.Lstat(a.bundle()); err == nil {
			return appRecord{State: Preparing}, nil // an add was killed before it wrote the record
		}
		err = fmt.Errorf("pod %s has no app %q: %w", a.pod.uuid, a.name, errdefs.ErrNotFound)
	}
	return r, err
}

func (a *app) write(r appRecord) error { return writeRecord(filepath.Join(a.bundle(), appFile), r) }

// lock waits for other commands on the app. If there is no such app, or if the command that it
// has waited for has removed the app, the error unwraps to errdefs.ErrNotFound.
func (a *app) lock(ctx context.Context) (*os.File, error) {
	if err := checkName(a.name); err != nil {
		return nil, err
	}
	l, err := lock(ctx, a.bundle(), true)
	if l == nil && err == nil {
		err = fmt.Errorf("pod %s has no app %q: %w", a.pod.uuid, a.name, errdefs.ErrNotFound)
	}
	return l, err
}

// AppConfig is a request for an app.
type AppConfig struct {
	Name string
	// Image names the image, as the package appimage reads it, and Images says where it comes
	// from. Their DataDir is the store's.
	Image    string
	Images   appimage.Config
	Args     []string // replace the arguments of the image's program
	Exec     []string // replaces the image's program and its arguments; Args follow
	Env      []string // NAME=VALUE; added to the image's, or replaces a variable of it
	User     string   // a name or uid, or with a group USER:GROUP; empty: the image's
	Cwd      string   // empty: the image's
	Volumes  []Volume
	Memory   int64 // the limit of memory in bytes; 0: none
	Terminal bool
	Stdin    bool // the app reads what Attach sends; without it the app's input is empty
}

// Add makes an app, and returns when it is prepared. If Add fails, nothing of the app remains.
// If it is killed, the app stays in the state preparing until it is removed.
func (p *Pod) Add(ctx context.Context, c AppConfig) error {
	if err := p.injectable("add app " + c.Name); err != nil {
		return err
	}
	return p.add(ctx, c, podReady)
}

// injectable returns an error if the apps of the pod cannot be changed.
func (p *Pod) injectable(what string) error {
	if p.record.Injectable {
		return nil
	}
	return fmt.Errorf("%s: pod %s was made without --injectable, so its apps stay as they are: %w", what, p.uuid, errdefs.ErrFailedPrecondition)
}

// add is Add for a pod in this state.
func (p *Pod) add(ctx context.Context, c AppConfig, state podState) (err error) {
	if err := checkName(c.Name); err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	a := p.app(c.Name)
	if err := os.Mkdir(a.bundle(), dirMode); errors.Is(err, fs.ErrExist) {
		st, _ := p.Status(ctx, c.Name)
		return fmt.Errorf("pod %s has an app %s already, which is %s: %w", p.uuid, c.Name, st.State, errdefs.ErrAlreadyExists)
	} else if err != nil {
		return errors.Join(err, p.is(state))
	}
	l, err := a.lock(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	p.store.fault("mkdir app")
	defer func() {
		if err != nil {
			err = errors.Join(err, a.destroy(context.WithoutCancel(ctx)))
		}
	}()
	// A removal of the pod that begins now waits for the lock; one that has begun is seen here.
	if err := p.is(state); err != nil {
		return err
	}
	r := appRecord{Version: recordVersion, Key: rand.Text(), State: Preparing, Created: time.Now()}
	if err := a.write(r); err != nil {
		return err
	}
	p.store.fault("write preparing")
	if r.StopSignal, err = a.create(ctx, c); err != nil {
		return fmt.Errorf("add app %s to pod %s: %w", c.Name, p.uuid, err)
	}
	r.State = Prepared
	if err := a.write(r); err != nil {
		return err
	}
	p.store.fault("write prepared")
	return nil
}

// create fills the bundle and makes the container. It returns the image's stop signal.
func (a *app) create(ctx context.Context, c AppConfig) (stop string, err error) {
	server, err := a.pod.server(ctx)
	if err != nil {
		return "", err
	}
	defer server.close()
	c.Images.DataDir = a.pod.store.DataDir
	image, err := appimage.Open(ctx, c.Image, c.Images)
	if err != nil {
		return "", err
	}
	defer image.Close() // the app has the tree by then
	a.pod.store.fault("open image")
	if err := os.Mkdir(filepath.Join(a.bundle(), "rootfs"), 0o755); err != nil {
		return "", err
	}
	rootfs, err := image.Rootfs(a.bundle())
	if err != nil {
		return "", err
	}
	a.pod.store.fault("prepare root")
	spec, err := a.spec(ctx, image, c)
	if err == nil {
		err = writeRecord(filepath.Join(a.bundle(), "config.json"), spec)
	}
	if err == nil {
		err = writeAddress(a.bundle(), a.pod.record.Address)
	}
	if err != nil {
		return "", err
	}
	a.pod.store.fault("write spec")
	var input string
	if c.Stdin {
		input = a.input()
		if err := unix.Mkfifo(input, 0o600); err != nil {
			return "", err
		}
	}
	log := fmt.Sprintf("file://%s?max-size=%d&max-files=%d", a.log(), LogSize, LogFiles)
	_, err = server.Create(ctx, &task.CreateTaskRequest{
		ID: a.name, Bundle: a.bundle(), Rootfs: rootfs.Mounts, Terminal: c.Terminal, Stdin: input, Stdout: log, Stderr: log,
	})
	a.pod.store.fault("create container")
	return image.StopSignal(), native(err)
}

// destroy removes everything of the app but its logs. The caller has the app's lock. It can be
// repeated.
func (a *app) destroy(ctx context.Context) error {
	server, err := a.pod.server(ctx)
	if err == nil {
		defer server.close()
		_, err = server.Delete(ctx, &task.DeleteRequest{ID: a.name})
		err = native(err)
	}
	if err != nil && !gone(err) {
		return fmt.Errorf("remove app %s of pod %s: %w", a.name, a.pod.uuid, err)
	}
	a.pod.store.fault("delete container")
	err = a.pod.store.collect(ctx, a.bundle(), a.name)
	a.pod.store.fault("collect container")
	if err == nil {
		err = removeAll(a.bundle())
	}
	a.pod.store.fault("remove app")
	if err != nil {
		return fmt.Errorf("remove app %s of pod %s: %w", a.name, a.pod.uuid, err)
	}
	return nil
}

// Start starts an app that is prepared. If the app is running, Start does nothing. In any other
// state it returns errdefs.ErrFailedPrecondition.
func (p *Pod) Start(ctx context.Context, name string) error {
	a := p.app(name)
	l, err := a.lock(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	server, err := p.server(ctx)
	if err != nil {
		return fmt.Errorf("start app %s: %w: %w", name, err, errdefs.ErrUnavailable)
	}
	defer server.close()
	st, err := a.status(ctx, server)
	switch {
	case err != nil:
		return err
	case st.State == Running:
		return nil
	case st.State == Exited:
		return a.illegal(st.State, "an app runs once; remove it, and add it again")
	case st.State != Prepared:
		return a.illegal(st.State, "it cannot be started")
	}
	began := time.Now() // a short app has ended when the call returns
	if _, err := server.Start(ctx, &task.StartRequest{ID: name}); err != nil {
		return fmt.Errorf("start app %s of pod %s: %w", name, p.uuid, native(err))
	}
	p.store.fault("start app")
	r, err := a.read()
	if err != nil {
		return err
	}
	r.Started = began
	return a.write(r)
}

// StartAll starts the apps that are prepared, in the order of their names.
func (p *Pod) StartAll(ctx context.Context) error {
	all, err := p.List(ctx)
	if err != nil {
		return err
	}
	for _, a := range all {
		if a.State != Prepared {
			continue
		}
		if err := p.Start(ctx, a.Name); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends a running app: SIGTERM, and SIGKILL after the period. If the app has exited, Stop
// does nothing. A second Stop may have a shorter period. Stop works if the pod's server is not
// running.
func (p *Pod) Stop(ctx context.Context, name string, period time.Duration) error {
	a := p.app(name)
	r, err := a.beginStop(ctx)
	if err != nil || r == nil {
		return err
	}
	p.store.fault("write stopping")
	if err := a.end(ctx, *r, period, nil); err != nil {
		return fmt.Errorf("stop app %s of pod %s: %w", name, p.uuid, err)
	}
	return nil
}

// beginStop writes the intent. It returns nil if the app has exited.
func (a *app) beginStop(ctx context.Context) (*appRecord, error) {
	l, err := a.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	st, err := a.pod.Status(ctx, a.name)
	switch {
	case err != nil:
		return nil, err
	case st.State == Exited:
		return nil, nil
	case st.State != Running && st.State != Stopping:
		return nil, a.illegal(st.State, "it is not running")
	}
	r, err := a.read()
	if err != nil || st.State == Stopping {
		return &r, err
	}
	r.State = Stopping
	return &r, a.write(r)
}

// end sends SIGTERM, or the image's signal, waits for the period, and sends SIGKILL, to the app of
// this record. held is the app's lock if the caller has it; otherwise the app may be removed
// meanwhile, and a later app may have its name.
func (a *app) end(ctx context.Context, r appRecord, period time.Duration, held *os.File) error {
	ended, err := a.signalled(ctx, r.Key, stopSignal(r.StopSignal), period, held)
	if err != nil || ended {
		return err
	}
	a.pod.store.fault("terminate app")
	ended, err = a.signalled(ctx, r.Key, syscall.SIGKILL, killLimit, held)
	if err == nil && !ended {
		err = fmt.Errorf("it was killed, and has not ended within %s", killLimit)
	}
	return err
}

// stopSignal returns the signal that an image names: SIGQUIT, QUIT or 3. Without a known name it
// is SIGTERM.
func stopSignal(name string) syscall.Signal {
	if n, err := strconv.Atoi(name); err == nil && n > 0 && n <= 64 {
		return syscall.Signal(n)
	}
	if s := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG")); s != 0 {
		return s
	}
	return syscall.SIGTERM
}

// signalled sends a signal and reports whether the app has ended within the limit.
func (a *app) signalled(ctx context.Context, key string, sig syscall.Signal, limit time.Duration, held *os.File) (ended bool, err error) {
	t, err := a.send(ctx, key, sig, held)
	if t == nil || err != nil {
		return err == nil, err
	}
	defer t.close()
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = t.wait(wait)
	if wait.Err() != nil && ctx.Err() == nil {
		return false, nil
	}
	if hasEnded(err) {
		err = nil
	}
	return err == nil, err
}

// hasEnded reports whether the error of a signal or wait says that the process has ended.
func hasEnded(err error) bool { return gone(err) || errors.Is(err, proc.ErrGone) }

// send sends a signal and returns what it was sent to, or nil if the app has ended or was
// removed. It has the app's lock meanwhile, so that no later app of the same name is hit.
func (a *app) send(ctx context.Context, key string, sig syscall.Signal, held *os.File) (*target, error) {
	if held == nil {
		l, err := a.lock(ctx)
		if errdefs.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		defer l.Close()
	}
	now, err := a.read()
	if err != nil || now.Key != key {
		return nil, err
	}
	t, err := a.target(ctx)
	if t == nil || err != nil {
		return nil, err
	}
	if err = t.signal(ctx, sig); err == nil {
		return t, nil
	}
	t.close()
	if hasEnded(err) {
		err = nil
	}
	return nil, err
}

// target is a process that is being stopped: by the pod's server, or without one.
type target struct {
	name    string
	server  *server
	process *proc.Process
}

// target returns the app's first process, or nil if it has ended.
func (a *app) target(ctx context.Context) (*target, error) {
	s, err := a.pod.server(ctx)
	if err == nil {
		return &target{name: a.name, server: s}, nil
	}
	if !errors.Is(err, errNoServer) {
		return nil, err
	}
	l, err := a.lifeOnDisk()
	if err != nil || l.pid == 0 {
		return nil, err
	}
	q, err := proc.Open(l.pid, l.start)
	if errors.Is(err, proc.ErrGone) {
		return nil, nil
	}
	return &target{process: q}, err
}

func (t *target) close() {
	if t.server != nil {
		t.server.close()
	} else if t.process != nil {
		_ = t.process.Close()
	}
}

func (t *target) signal(ctx context.Context, sig syscall.Signal) error {
	if t.process != nil {
		return t.process.Signal(sig)
	}
	_, err := t.server.Kill(ctx, &task.KillRequest{ID: t.name, Signal: uint32(sig), All: sig == syscall.SIGKILL})
	return native(err)
}

func (t *target) wait(ctx context.Context) error {
	if t.process != nil {
		return t.process.Wait(ctx)
	}
	// The end of ctx does not end the call, because ttrpc logs an answer that it no longer waits
	// for. close ends it.
	answer := make(chan error, 1)
	go func() {
		_, err := t.server.Wait(context.WithoutCancel(ctx), &task.WaitRequest{ID: t.name})
		answer <- native(err)
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Delete removes an app with everything that belongs to it except its logs. It stops a running
// app first, as Stop does. Once it has begun, no other command is legal.
func (p *Pod) Delete(ctx context.Context, name string, period time.Duration) error {
	if err := p.injectable("remove app " + name); err != nil {
		return err
	}
	a := p.app(name)
	l, err := a.lock(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	r, err := a.read()
	if err != nil {
		return err
	}
	r.Version, r.State = recordVersion, Deleting
	if err := a.write(r); err != nil {
		return err
	}
	p.store.fault("write deleting")
	life, err := a.lifeNow(ctx)
	if err != nil {
		return err
	}
	if life.started && !life.ended {
		if err := a.end(ctx, r, period, l); err != nil {
			return fmt.Errorf("stop app %s of pod %s: %w", name, p.uuid, err)
		}
	}
	p.store.fault("end app")
	return a.destroy(ctx)
}
