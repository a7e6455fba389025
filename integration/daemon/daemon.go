// Package daemon runs a private containerd, with its own root, state, sockets, shim sockets and
// configuration, and ends exactly this containerd. Several of them, and the machine's own, do
// not affect each other. Package leaks looks for remains of their containers.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
)

// readiness bounds the time until a daemon answers. On an idle machine it takes well under a
// second.
const readiness = 60 * time.Second

// Options describe how a daemon runs.
type Options struct {
	Dir       string   // private directory; short, because sockets are in it
	Programs  string   // directory of containerd and ctr
	Shims     []string // directories of shims, searched before PATH
	Env       []string // further environment of the daemon and its shims
	Namespace string   // containerd's namespace that Ctr and Client use
	LogLevel  string   // of the daemon and its shims: debug unless set
	// Old is for a containerd before 2.0, whose configuration has another form. Its shims
	// listen in /run/containerd/s.
	Old bool
	// Config replaces the usual configuration. In it DIR, SOCKETS and LEVEL stand for the
	// private directory, the directory of the shims' sockets, and LogLevel.
	Config string
	// Tracing is the URL of a collector of OpenTelemetry, to which the daemon sends its spans by
	// HTTP.
	Tracing string
	// Wrapper is a command that changes what processes inherit and then executes its further
	// arguments, or nil.
	Wrapper []string
}

// Daemon is a running containerd.
type Daemon struct {
	opts Options
	path string
	// process and ended belong to the current run of the daemon.
	process *os.Process
	ended   chan struct{}
}

// Start starts a daemon and returns when it serves. The caller must call Stop.
func Start(ctx context.Context, opts Options) (*Daemon, error) {
	d := &Daemon{opts: opts, path: searchPath(opts)}
	if err := os.MkdirAll(opts.Dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(d.configPath(), []byte(config(opts, cmp.Or(opts.LogLevel, "debug"))), 0o644); err != nil {
		return nil, err
	}
	return d, d.Resume(ctx)
}

// Resume starts the daemon again after Stop or Kill, with the state that it has left.
func (d *Daemon) Resume(ctx context.Context) error {
	log, err := os.OpenFile(d.LogPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	args := append(slices.Clone(d.opts.Wrapper), filepath.Join(d.opts.Programs, "containerd"), "--config", d.configPath())
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(append(os.Environ(), "PATH="+d.path), d.opts.Env...)
	if d.opts.Tracing != "" {
		cmd.Env = append(cmd.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+d.opts.Tracing, "OTEL_BSP_SCHEDULE_DELAY=100") // milliseconds
	}
	cmd.Stdout, cmd.Stderr = log, log
	// In a process group of its own the daemon does not get the terminal's interrupt. It also
	// ends with this process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	ended := make(chan struct{})
	go func() {
		// The kernel sends the death signal when the thread that started the process ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the log says how it ended
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	d.process, d.ended = cmd.Process, ended
	if err := d.awaitReady(ctx); err != nil {
		d.Kill()
		return fmt.Errorf("%w\n%s", err, d.LogTail(30))
	}
	return nil
}

// Upgrade makes the next Resume start another containerd, with the same state and
// configuration.
func (d *Daemon) Upgrade(programs string) {
	d.opts.Programs = programs
	d.path = searchPath(d.opts)
}

func searchPath(opts Options) string {
	return strings.Join(append(append([]string(nil), opts.Shims...), opts.Programs, os.Getenv("PATH")), ":")
}

// awaitReady dials until the daemon answers.
func (d *Daemon) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readiness)
	defer cancel()
	for {
		select {
		case <-d.ended:
			return errors.New("containerd ended before it served")
		case <-ctx.Done():
			return fmt.Errorf("containerd does not serve on %s: %w", d.Address(), ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
		if d.serves(ctx) {
			return nil
		}
	}
}

func (d *Daemon) serves(ctx context.Context) bool {
	if _, err := os.Stat(d.Address()); err != nil {
		return false
	}
	client, err := d.Client(containerd.WithTimeout(time.Second))
	if err != nil {
		return false
	}
	defer client.Close()
	ok, err := client.IsServing(ctx)
	return ok && err == nil
}

// Stop ends the daemon as a service manager would. Its shims stay.
func (d *Daemon) Stop() error {
	if err := d.process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-d.ended:
		return nil
	case <-time.After(30 * time.Second):
		d.Kill()
		return errors.New("containerd did not end within 30 s of SIGTERM")
	}
}

// Kill kills the daemon with SIGKILL.
func (d *Daemon) Kill() {
	_ = d.process.Kill() // it may have ended already
	<-d.ended
}

// Client connects to the daemon, in the namespace of the options.
func (d *Daemon) Client(opts ...containerd.Opt) (*containerd.Client, error) {
	return containerd.New(d.Address(), append([]containerd.Opt{containerd.WithDefaultNamespace(d.opts.Namespace)}, opts...)...)
}

// Ctr prepares a call of ctr in the namespace of the options.
func (d *Daemon) Ctr(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{"--address", d.Address(), "--namespace", d.opts.Namespace}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(d.opts.Programs, "ctr"), args...)
	cmd.Env = append(os.Environ(), "PATH="+d.path)
	return cmd
}

// In returns the same daemon for another of containerd's namespaces. The returned value must
// not be used to stop or resume the daemon.
func (d *Daemon) In(namespace string) *Daemon {
	other := *d
	other.opts.Namespace = namespace
	return &other
}

// Ended is closed when the current run of the daemon has ended.
func (d *Daemon) Ended() <-chan struct{} { return d.ended }

// PID is the pid of the daemon.
func (d *Daemon) PID() int { return d.process.Pid }

// Namespace is the namespace of the options.
func (d *Daemon) Namespace() string { return d.opts.Namespace }

// Dir is the private directory.
func (d *Daemon) Dir() string { return d.opts.Dir }

// Address is the path of the gRPC socket.
func (d *Daemon) Address() string { return filepath.Join(d.opts.Dir, "grpc.sock") }

// Bundle is the directory of a container's bundle.
func (d *Daemon) Bundle(id string) string {
	return filepath.Join(d.opts.Dir, "state/io.containerd.runtime.v2.task", d.opts.Namespace, id)
}

// LogPath is the file with the log of the daemon and its shims.
func (d *Daemon) LogPath() string { return filepath.Join(d.opts.Dir, "containerd.log") }

// LogTail returns the last lines of the log, without debug lines and without the plugins that
// containerd lists at every start.
func (d *Daemon) LogTail(lines int) string {
	b, err := os.ReadFile(d.LogPath())
	if err != nil {
		return err.Error()
	}
	all := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(b)), "\n"), func(l string) bool {
		return strings.Contains(l, "level=debug") || strings.Contains(l, "loading plugin")
	})
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (d *Daemon) configPath() string { return filepath.Join(d.opts.Dir, "config.toml") }
