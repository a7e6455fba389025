// Package daemon runs a private containerd: its own root, state, sockets, shim
// sockets and configuration, and ends exactly it. Two of them, and the
// machine's own, do not meet. What remains of their containers is package
// leaks' business.
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

// readiness bounds how long a daemon may take to answer; it takes well under a
// second, unless the machine is busy.
const readiness = 60 * time.Second

// Options say how a daemon is to run.
type Options struct {
	Dir       string   // private directory, kept short: sockets are in it
	Programs  string   // directory of containerd and ctr
	Shims     []string // directories of shims, searched before PATH
	Env       []string // further environment of the daemon and its shims
	Namespace string   // containerd's namespace that Ctr and Client use
	LogLevel  string   // of the daemon and its shims: debug unless set
	// Old is for a containerd before 2.0, which has another form of
	// configuration. Its shims listen in /run/containerd/s.
	Old bool
	// Config is the configuration, unless it is the usual one. DIR, SOCKETS and
	// LEVEL in it are replaced by the private directory, that of the shims' sockets
	// and LogLevel.
	Config string
}

// Daemon is a running containerd.
type Daemon struct {
	opts Options
	path string
	// process and ended belong to the current run of the daemon.
	process *os.Process
	ended   chan struct{}
}

// Start starts a daemon and returns once it serves. Stop must be called.
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

// Resume starts the daemon again after Stop or Kill, on the state that it left.
func (d *Daemon) Resume(ctx context.Context) error {
	log, err := os.OpenFile(d.LogPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(d.opts.Programs, "containerd"), "--config", d.configPath())
	cmd.Env = append(append(os.Environ(), "PATH="+d.path), d.opts.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	// In a group of its own it does not see the terminal's interrupt, and it
	// does not outlive this process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	ended := make(chan struct{})
	go func() {
		// The death signal belongs to the thread that starts the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
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

// Upgrade makes the next Resume that of another containerd, on the same state and
// with the same configuration.
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

// Kill ends the daemon without giving it a say.
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

// In is the same daemon for another of containerd's namespaces. It is not to be
// stopped or resumed by that name.
func (d *Daemon) In(namespace string) *Daemon {
	other := *d
	other.opts.Namespace = namespace
	return &other
}

// Ended is closed when the current run of the daemon has ended.
func (d *Daemon) Ended() <-chan struct{} { return d.ended }

// PID is the daemon's.
func (d *Daemon) PID() int { return d.process.Pid }

// Namespace is the one of the options.
func (d *Daemon) Namespace() string { return d.opts.Namespace }

// Dir is the private directory.
func (d *Daemon) Dir() string { return d.opts.Dir }

// Address is the path of the gRPC socket.
func (d *Daemon) Address() string { return filepath.Join(d.opts.Dir, "grpc.sock") }

// Bundle is the directory of a container's bundle.
func (d *Daemon) Bundle(id string) string {
	return filepath.Join(d.opts.Dir, "state/io.containerd.runtime.v2.task", d.opts.Namespace, id)
}

// LogPath is the file of everything that the daemon and its shims said.
func (d *Daemon) LogPath() string { return filepath.Join(d.opts.Dir, "containerd.log") }

// LogTail returns the last lines of the log, without debugging and the plugins that every
// start of containerd lists.
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
