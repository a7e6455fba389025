package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Boot returns a running machine when QEMU has begun to execute the guest, and Booted has returned. If ctx is done before
// that, nothing is left.
func Boot(ctx context.Context, c Config) (Machine, error) {
	defer proc.CloseFiles(c.Channel, c.Console)
	for _, s := range c.Shares {
		defer proc.CloseFiles(s.Tree)
	}
	m, err := boot(ctx, &c)
	if err != nil {
		return nil, fmt.Errorf("boot a machine: %w", err)
	}
	go m.supervise()
	return m, nil
}

// boot boots a machine, or restores one that was saved.
func boot(ctx context.Context, c *Config) (*machine, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := verify(c.Kernel, c.KernelSum, sums); err != nil {
		return nil, err
	}
	if err := verify(c.Modules, c.ModulesSum, sums); err != nil {
		return nil, err
	}
	m := newMachine(c)
	err := m.begin(ctx)
	if errors.As(err, new(restoreError)) {
		fmt.Fprintf(m.config.Log, "the machine boots: %v\n", err)
		m = newMachine(c)
		m.config.Saved = ""
		err = m.begin(ctx)
	}
	return m, err
}

func newMachine(c *Config) *machine {
	m := &machine{config: *c, resizing: make(chan struct{}, 1), done: make(chan struct{}), devices: map[Device]*device{}}
	if c.Log == nil {
		m.config.Log = io.Discard
	}
	m.config.Type = cmp.Or(c.Type, Q35)
	return m
}

// begin starts the machine. After an error nothing of it is left. If it was to be restored, the saved machine is not left either,
// unless the error is the pod's.
func (m *machine) begin(ctx context.Context) error {
	err := m.start(ctx)
	m.memory.close()
	if err == nil {
		return nil
	}
	forgotten := m.origin != "" && ctx.Err() == nil && !m.wasKilled()
	if forgotten {
		err = errors.Join(err, m.Forget())
	}
	m.kill()
	err = m.explain(ctx, err)
	m.wait()
	switch {
	case forgotten && len(m.shares) == 0: // a share can be plugged in once
		return restoreError{err}
	case m.crashed():
		return guestError(err.Error())
	}
	return err
}

// explain adds to an error what the machine's processes have written, if they have ended by themselves.
func (m *machine) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, p := range m.processes() {
		p.end()
		byItself := p.Wait().Code != 0 && (p == m.qemu || p.Wait().Signal != int(unix.SIGKILL))
		if f := p.failure(); byItself && p.said() != "" && !strings.Contains(err.Error(), f.Error()) {
			err = errors.Join(err, f)
		}
	}
	return err
}

// start starts QEMU, and has the guest come to where it waits for its pod.
func (m *machine) start(ctx context.Context) error {
	line, err := newCommandLine(&m.config)
	if err != nil {
		return err
	}
	defer line.close()
	m.qmp = newMonitor(line.monitor)
	j, err := m.jail()
	if err != nil {
		return err
	}
	var name string // of the machine when it is saved
	var from *saved
	if m.config.Saved != "" {
		if name, from, err = m.findSaved(line.args); err != nil {
			fmt.Fprintf(m.config.Log, "no machine is restored: %v\n", err)
		}
	}
	defer from.close()
	if err := m.makeInitrd(from != nil); err != nil {
		return err
	}
	if from != nil {
		m.origin = filepath.Join(m.config.Saved, name)
		line.add("-incoming", "defer")
		if err := m.copy(from); err != nil {
			return err
		}
	}
	if m.config.Type == MicroVM {
		if err := m.addFixed(line); err != nil {
			return err
		}
	}
	m.qemu, err = start(&m.config, &program{
		argv: append([]string{qemu}, line.args...), files: line.files, sys: j.attributes(), prepare: j.prepare,
	})
	if err != nil {
		return err
	}
	line.close()
	stop := context.AfterFunc(ctx, m.kill)
	defer stop()
	if err := m.qmp.negotiate(ctx); err != nil {
		return err
	}
	restore := func() error { return m.restore(ctx, from) }
	empty := func() error { return m.qemu.thread.do(j.empty) } // QEMU has read all of its files
	run := func() error { return m.run(ctx) }
	boot := func() error { return m.awaitBoot(ctx) }
	save := func() error { m.save(ctx, name); return nil }
	plug := func() error { return m.addShares(ctx) }
	switch {
	case m.config.Type == MicroVM:
		return inOrder(empty, run, boot)
	case from != nil:
		return inOrder(restore, empty, plug, run)
	case name != "":
		return inOrder(empty, run, boot, save, plug, run)
	default:
		return inOrder(empty, plug, run, boot)
	}
}

// inOrder does steps until one fails.
func inOrder(steps ...func() error) error {
	for _, do := range steps {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// run has QEMU execute the guest, or go on with it.
func (m *machine) run(ctx context.Context) error { return m.qmp.execute(ctx, "cont", nil, nil) }

// endsWithin is the time in which QEMU ends after its end of the channel.
const endsWithin = time.Second

// awaitBoot waits for Booted, or for the end of QEMU.
func (m *machine) awaitBoot(ctx context.Context) error {
	if m.config.Booted == nil {
		return nil
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-m.qemu.Done():
			cancel()
		case <-m.qmp.stopped:
			cancel()
		case <-within.Done():
		}
	}()
	err := m.config.Booted(within)
	if err == nil || ctx.Err() != nil {
		return err
	}
	select {
	case <-m.qmp.stopped:
		m.kill()
		return m.reason(nil)
	case <-m.qemu.Done():
		<-m.qmp.done // it knows why the guest has ended
		if ended := m.reason(m.qemu); ended != nil {
			return ended
		}
		return errors.New("the guest has powered off while it booted")
	case <-time.After(endsWithin):
		return err
	}
}

// jail makes what QEMU's jail needs on the host.
func (m *machine) jail() (*jail, error) {
	c := &m.config
	users := c.Users
	if users == (Users{}) {
		users = defaultUsers
	}
	id, claimed, err := users.claim()
	if err != nil {
		return nil, err
	}
	m.user = claimed
	if m.memory, err = newMemory(c.Memory, id); err != nil {
		return nil, err
	}
	dir := filepath.Join(c.Dir, "jail")
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	files := map[string]string{kernel: c.Kernel, initrd: filepath.Join(c.Dir, initrd)}
	return &jail{dir: dir, files: files, memory: m.memory, kvm: c.Accel == KVM, user: id}, nil
}
