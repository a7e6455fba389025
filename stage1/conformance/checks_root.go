package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// rootChecks check that a mount namespace of an app has nothing of the host's.
func rootChecks() []Check {
	const refused = "cannot mount a procfs or sysfs without the app's masks in a user namespace"
	below := basic("root/below", "5 app/add", "no mount of the host is below an app's root", checkBelow)
	below.unless, below.asks, below.honest = abi.OwnProcesses, isolate, true
	app := basic("root/app", "5 app/add", "an app "+refused, checkFreshInApp)
	exec := basic("root/exec", "5 app/add", "an exec "+refused, checkFreshInExec)
	exec.Level, exec.needs = LevelExec, []abi.Entrypoint{abi.Enter}
	app.asks, app.honest = masked, true
	exec.asks, exec.honest = masked, true
	return []Check{below, app, exec}
}

// masked asks for the file systems and masks of an ordinary container.
func masked(s *specs.Spec) {
	isolate(s)
	s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	s.Mounts = append(s.Mounts, specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro"}})
	s.Linux.MaskedPaths = []string{"/proc/irq", "/sys/kernel"}
	s.Linux.ReadonlyPaths = []string{"/proc/sys"}
	unprivileged(s.Process)
}

// unprivileged changes the user of a process: without CAP_SETFCAP the kernel does not let root map itself into
// a user namespace.
func unprivileged(p *specs.Process) { p.User = specs.User{UID: 4711, GID: 4711} }

// checkBelow enters the app's mount namespace, and there does in a copy of it what a process with
// CAP_SYS_ADMIN can do.
func checkBelow(ctx context.Context, t *trial) error {
	a, err := t.wholePod().waiting(ctx, isolate)
	if err != nil {
		return err
	}
	pidfd, err := unix.PidfdOpen(a.pid, 0)
	if err != nil {
		return fmt.Errorf("open a pidfd of the app: %w", err)
	}
	defer unix.Close(pidfd)
	procfs, err := os.Open("/proc")
	if err != nil {
		return err
	}
	defer procfs.Close()
	var text string
	err = proc.OnThread(func() (err error) {
		text, err = mountsBelowRoot(pidfd, int(procfs.Fd()))
		return err
	})
	if lines := strings.Split(strings.TrimSpace(text), "\n"); err == nil && len(lines) > 1 {
		return fmt.Errorf("%d mounts are below the app's root, such as %q", len(lines), lines[len(lines)-1])
	}
	return err
}

// mountsBelowRoot returns the mountinfo of a thread that has entered a mount namespace, copied it and
// unmounted its root. The first line is that of the filesystem with which the kernel begins. The text is
// empty if that root is the lowest.
func mountsBelowRoot(pidfd, procfs int) (string, error) {
	self := -1
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"unshare the root", func() error { return unix.Unshare(unix.CLONE_FS) }},
		{"enter the app's mount namespace", func() error { return unix.Setns(pidfd, unix.CLONE_NEWNS) }},
		{"copy the mount namespace", func() error { return unix.Unshare(unix.CLONE_NEWNS) }},
		{"set the propagation of the copy", func() error { return unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, "") }},
		{"open the copy", func() (err error) { self, err = openAt(procfs, "thread-self/ns/mnt"); return err }},
	} {
		if err := step.do(); err != nil {
			return "", fmt.Errorf("%s: %w", step.what, err)
		}
	}
	defer unix.Close(self)
	err := unix.Unmount("/", unix.MNT_DETACH)
	if errors.Is(err, unix.EINVAL) {
		return "", nil
	}
	if err == nil {
		err = unix.Setns(self, unix.CLONE_NEWNS)
	}
	if err != nil {
		return "", fmt.Errorf("look below the app's root: %w", err)
	}
	fd, err := openAt(procfs, "thread-self/mountinfo")
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), "mountinfo")
	defer f.Close()
	var text strings.Builder
	_, err = f.WriteTo(&text)
	return text.String(), err
}

func openAt(dir int, name string) (int, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		err = fmt.Errorf("open %s: %w", name, err)
	}
	return fd, err
}

func checkFreshInApp(ctx context.Context, t *trial) error {
	a, err := t.wholePod().start(ctx, masked, freshVerb()...)
	if err != nil {
		return err
	}
	return refusesFresh(ctx, a.streams)
}

func checkFreshInExec(ctx context.Context, t *trial) error {
	a, err := t.wholePod().waiting(ctx, masked)
	if err != nil {
		return err
	}
	e, err := a.exec(ctx, "exec", unprivileged, freshVerb()...)
	if err != nil {
		return err
	}
	return refusesFresh(ctx, e.streams)
}

func freshVerb() []string { return []string{"observe", "fresh proc", "fresh sysfs"} }

func refusesFresh(ctx context.Context, s *streams) error {
	answers, err := s.answers(ctx)
	for question, answer := range answers {
		if answer != "EPERM" && answer != noUserNamespace {
			err = errors.Join(err, fmt.Errorf("%s: %s, want EPERM", question, answer))
		}
	}
	return err
}

// noUserNamespace is an answer to the question "fresh".
const noUserNamespace = "no user namespace"

// fresh mounts a new filesystem in new namespaces, in a child of this process.
func fresh(fstype string) (string, error) {
	cmd := exec.Command("/proc/self/exe", "fresh", fstype)
	cmd.Args[0] = usualName
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return noUserNamespace, nil
	}
	return string(out), err
}

// mountFresh is the child of fresh.
func mountFresh(fstype string) int {
	answer := "a new one can be mounted"
	if err := unix.Mount(fstype, "/tmp", fstype, 0, ""); err != nil {
		answer = kernelError(err)
	}
	fmt.Print(answer)
	return 0
}
