// Command vm runs the tests that touch cgroups in a Debian guest, which has systemd as its first
// process and cgroup version 2. It is for machines that lack one of the two. It prints the output
// of `go test -json` on stdout, and its progress on stderr.
//
// The guest may have another architecture than the machine. Its suites are then a few, each with
// the number of tests that it skips.
//
// The guest's kernel and root file system are made from Debian's packages, once. The shim,
// containerd and the test binaries are on a second disk, because there is no Go in the guest.
// The tests' output is read from a virtio port. The guest runs under QEMU without KVM, because
// some machines offer KVM although it does not work. So it is five to eight times slower than
// the machine.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// errTests means that the guest has run the tests, and some failed.
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
	runtimes := flag.String("runtimes", "", "columns of the integration suite: native, oci, nspawn, runc (native,oci, and native in a guest of a foreign architecture)")
	arch := flag.String("arch", runtime.GOARCH, "the guest's architecture: amd64 or arm64. -bin must be for it")
	old := flag.Bool("version1", false, "the guest has version 1 of cgroups")
	limit := flag.Duration("timeout", 2*time.Hour, "how long the guest may run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	guest, err := findArchitecture(*arch)
	if err != nil {
		return err
	}
	s.foreign = guest.foreign()
	columns := "native,oci"
	if s.foreign {
		columns = "native"
	}
	// Everything that is built from here on is for the guest.
	if err := os.Setenv("GOARCH", guest.name); err != nil {
		return err
	}
	return runTests(ctx, payload{arch: guest, bin: *bin, suites: s.suites(), runtimes: cmp.Or(*runtimes, columns), version1: *old}, *limit)
}

func runTests(ctx context.Context, p payload, limit time.Duration) error {
	log := os.Stderr
	if err := p.arch.missing(); err != nil {
		return err
	}
	m, err := newMachine(ctx, log, p.arch)
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
	err = boot(ctx, log, m, p, disk, console)
	if err != nil && !errors.Is(err, errTests) {
		return fmt.Errorf("%w\nThe guest's console ends with:\n%s", err, tail(console, 4000))
	}
	return err
}

// bootLimit is the time limit for the start of the guest, until its tests begin. It usually
// takes half a minute.
const bootLimit = 10 * time.Minute

// boot runs the guest until it powers off.
func boot(ctx context.Context, log io.Writer, m machine, p payload, disk, console string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.CommandContext(ctx, m.arch.qemu, m.arguments(p, disk, console)...)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// If QEMU's input ends, QEMU reports to the guest that the host has hung up, and the
	// guest's writes then block.
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
	r := results{out: os.Stdout, log: log, start: time.Now(), up: late.Stop, skips: skips(p.suites)}
	readErr := r.read(ctx, out)
	if readErr != nil && !errors.Is(readErr, errTests) { // the guest's output is not read any more
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
