// Command vm runs, in a Debian guest that has systemd as its first process and
// version 2 of cgroups, those tests that touch cgroups: whatever the machine
// itself has. It prints what `go test -json` would, and tells on stderr how it gets
// on.
//
// The guest's kernel and root file system are made of Debian's packages, once. The
// shim, containerd and the test binaries come on a second disk, because there is no
// Go in the guest; what the tests say comes back through a virtio port. It runs
// under QEMU without KVM, which a machine may offer and yet not have, five to eight
// times slower than the machine itself.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// errTests says that the guest did its work, and tests failed.
var errTests = errors.New("tests failed")

func main() {
	if err := command(); err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(1)
	}
}

func command() error {
	bin := flag.String("bin", "../bin", "directory that make build fills")
	var s selection
	flag.BoolVar(&s.short, "short", false, "run only what nothing else stands in for, in a few minutes")
	flag.StringVar(&s.run, "run", "", "run only these tests, and all of them whether they touch cgroups or not")
	flag.StringVar(&s.suite, "suite", "", "run only the tests of this package, of any in the tree: its directory, as pod/cgroup or integration/cri")
	flag.StringVar(&s.args, "args", "", "further arguments for the test binaries: words without blanks")
	runtimes := flag.String("runtimes", "native,oci", "columns of the integration suite: native, oci, nspawn, runc")
	limit := flag.Duration("timeout", 2*time.Hour, "how long the guest may run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return runTests(ctx, payload{bin: *bin, suites: s.suites(), runtimes: *runtimes}, *limit)
}

func runTests(ctx context.Context, p payload, limit time.Duration) error {
	log := os.Stderr
	if err := missing(); err != nil {
		return err
	}
	m, err := newMachine(ctx, log)
	if err != nil {
		return fmt.Errorf("make the guest: %w", err)
	}
	dir, err := os.MkdirTemp("", "rkt-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	disk := filepath.Join(dir, "payload.ext4")
	if err := p.write(ctx, log, disk); err != nil {
		return fmt.Errorf("build what the guest runs: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("its tests took more than %s (-timeout)", limit))
	defer cancel()
	console := filepath.Join(dir, "console")
	err = boot(ctx, log, m, disk, console)
	if err != nil && !errors.Is(err, errTests) {
		return fmt.Errorf("%w\nThe guest's console ends with:\n%s", err, tail(console, 4000))
	}
	return err
}

// bootLimit is how long the guest may take before its tests begin: half a minute is
// the rule.
const bootLimit = 10 * time.Minute

// boot runs the guest until it powers itself off.
func boot(ctx context.Context, log io.Writer, m machine, disk, console string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.CommandContext(ctx, qemu, m.arguments(disk, console)...)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// QEMU takes the end of its input for a host that has hung up, and then the
	// guest's writes wait for another one.
	if _, err := cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	fmt.Fprintln(log, "==> booting the guest")
	if err := cmd.Start(); err != nil {
		return err
	}
	late := time.AfterFunc(bootLimit, func() { cancel(fmt.Errorf("it was not up within %s", bootLimit)) })
	defer late.Stop()
	r := results{out: os.Stdout, log: log, start: time.Now(), up: late.Stop}
	readErr := r.read(ctx, out)
	if readErr != nil && !errors.Is(readErr, errTests) { // nobody listens to the guest any more
		_ = cmd.Process.Kill()
	}
	waitErr := cmd.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("the guest was stopped, suite %q: %w", r.suite, context.Cause(ctx))
	}
	return errors.Join(readErr, waitErr)
}

func tail(path string, bytes int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-bytes):])
}
