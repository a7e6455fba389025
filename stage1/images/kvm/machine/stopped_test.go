package machine

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// sleeper is a machine whose guest never comes to where it waits for its pod.
func sleeper(t *testing.T) *machine {
	t.Helper()
	p := probe(t)
	c := Config{Kernel: p.Kernel, Modules: p.Modules, Dir: p.Dir, Children: Children}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours := os.NewFile(uintptr(pair[0]), "channel")
	t.Cleanup(func() { ours.Close() })
	c.Channel = os.NewFile(uintptr(pair[1]), "channel")
	if c.Console, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Channel.Close(); c.Console.Close() })
	c.Init, c.Accel, c.CPUs, c.Memory = os.Args[0], TCG, 1, 128*mebibyte
	return newMachine(&c)
}

// As it does if KVM cannot execute an instruction.
func TestAMachineEndsWhenQEMUStopsAGuestThatBoots(t *testing.T) {
	m := sleeper(t)
	m.config.Booted = func(ctx context.Context) error {
		if err := m.qmp.execute(t.Context(), "stop", nil, nil); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		return ctx.Err()
	}
	ended := make(chan error, 1)
	go func() { ended <- m.begin(t.Context()) }()
	if err := wait.For(t, "the boot ends", ended); err == nil || !strings.Contains(err.Error(), "QEMU cannot execute the guest any more") {
		t.Errorf("the boot has ended with %v", err)
	}
}

// QEMU cannot save a machine that has a share, and then keeps the pipe into which it should write.
func TestAMachineThatQEMUCannotSaveGoesOn(t *testing.T) {
	m := sleeper(t)
	m.config.Shares = []Share{{Tag: "pod", Dir: t.TempDir()}}
	if err := m.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { m.kill(); m.wait(); m.memory.close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := m.write(ctx, t.TempDir()); err == nil || !strings.Contains(err.Error(), "non-migratable") || ctx.Err() != nil {
		t.Errorf("it is saved: %v", err)
	}
	if err := m.run(ctx); err != nil {
		t.Error(err)
	}
}
