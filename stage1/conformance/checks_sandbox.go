package conformance

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// sandboxChecks check pods of the Sandbox service, which begin without an app. They pass if
// the stage1 refuses such pods.
func sandboxChecks() []Check {
	check := func(id, sentence string, run func(context.Context, *sandbox) error) Check {
		c := sandboxCheck(id, sentence, run)
		c.unless = abi.OwnNamespaces
		return c
	}
	return append([]Check{
		check("sandbox/empty", "a pod without an app has a process that holds its namespaces, with the hostname that was asked for", checkEmptySandbox),
		check("sandbox/closed", "the process that holds the namespaces of a pod shows nothing of the host's: its user, without capabilities, cannot look into it, and nobody can write to the host through a procfs in its root", checkClosedSandbox),
		check("sandbox/app", "an app that comes later joins the namespaces of the pod, which lives on without it", checkAppOfSandbox),
		sandboxCheck("sandbox/stop", "stop ends a pod with its apps, and the process that holds its namespaces", checkStopSandbox),
	}, insideChecks()...)
}

// sandboxCheck returns a check of a sandbox.
func sandboxCheck(id, sentence string, run func(context.Context, *sandbox) error) Check {
	c := mutable(id, "4", sentence, func(ctx context.Context, t *trial) error { return run(ctx, must(t.sandbox(ctx))) })
	c.asks = isolate
	return c
}

// shared returns the namespaces of a sandbox that its apps join, with their names in the
// OCI spec and in /proc.
func shared() map[specs.LinuxNamespaceType]string {
	return map[specs.LinuxNamespaceType]string{specs.IPCNamespace: "ipc", specs.UTSNamespace: "uts", specs.NetworkNamespace: "net"}
}

// sandbox is a pod that was started without an app.
type sandbox struct {
	*wholePod
	id     string
	holder int
}

// sandbox makes and starts a sandbox. It ends with the trial.
func (t *trial) sandbox(ctx context.Context) (*sandbox, error) {
	b := &sandbox{wholePod: t.wholePod(), id: t.id()}
	bundle := must(os.MkdirTemp(t.dir, "sandbox-"))
	c := pod.SandboxConfig{ID: b.id, Bundle: bundle, Hostname: t.values.sandboxName, CgroupsPath: t.cgroups + "/" + b.id, Sysctl: t.settings()}
	for kind := range shared() {
		c.Namespaces = append(c.Namespaces, abi.Namespace{Type: string(kind)})
	}
	c.Namespaces = append(c.Namespaces, abi.Namespace{Type: string(specs.PIDNamespace)}) // apps may join it
	try(b.CreateSandbox(ctx, c))
	t.later(func(ctx context.Context) error {
		if err := b.ShutdownSandbox(ctx, b.id); !errdefs.IsNotFound(err) {
			return err
		}
		return nil
	})
	st, err := b.StartSandbox(ctx, b.id)
	if errdefs.IsNotImplemented(err) {
		return nil, &cannotError{err}
	}
	b.holder = st.PID
	return b, err
}

// hold fails unless a process is in the namespaces of the sandbox.
func (b *sandbox) hold(pid int) error {
	host, holder, its := namespacesOf(os.Getpid()), namespacesOf(b.holder), namespacesOf(pid)
	for _, ns := range shared() {
		switch {
		case holder[ns] == host[ns]:
			return fmt.Errorf("the %s namespace of the pod is the host's", ns)
		case its[ns] != holder[ns]:
			return fmt.Errorf("process %d is not in the %s namespace of the pod", pid, ns)
		}
	}
	return nil
}

// add makes an app that joins the sandbox and waits.
func (b *sandbox) add(ctx context.Context) (*wholeApp, error) {
	return b.waiting(ctx, b.join)
}

// join makes the spec of an app ask for the namespaces of the sandbox.
func (b *sandbox) join(s *specs.Spec) {
	var list []specs.LinuxNamespace
	for _, n := range append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace}) {
		if name := shared()[n.Type]; name != "" {
			n.Path = fmt.Sprintf("/proc/%d/ns/%s", b.holder, name)
		}
		list = append(list, n)
	}
	s.Linux.Namespaces = list
}

func checkEmptySandbox(_ context.Context, b *sandbox) error {
	try(b.hold(b.holder))
	if name := must(hostnameOf(b.holder)); name != b.t.values.sandboxName {
		return fmt.Errorf("its hostname is %q, want %q", name, b.t.values.sandboxName)
	}
	return nil
}

// checkClosedSandbox tries to reach the host through the holder. A container could do so if
// it shares the pod's PID namespace or uses the host's. It tries as the holder's user, and
// as the host's root, against whom only the mounts protect.
func checkClosedSandbox(_ context.Context, b *sandbox) error {
	for _, name := range []string{"sys/kernel/core_pattern", "sysrq-trigger", "irq/default_smp_affinity"} {
		path := fmt.Sprintf("/proc/%d/root/proc/%s", b.holder, name)
		if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
			f.Close()
			return fmt.Errorf("the host's /proc/%s can be written to in the root of process %d, which holds the namespaces", name, b.holder)
		}
	}
	info := must(os.Stat(fmt.Sprintf("/proc/%d", b.holder))) // its owner is the owner of the process
	owner := info.Sys().(*syscall.Stat_t)
	return asUser(owner.Uid, owner.Gid, func() error {
		for _, name := range []string{"root/.", "environ", "mem"} {
			f, err := os.Open(fmt.Sprintf("/proc/%d/%s", b.holder, name))
			if err == nil {
				f.Close()
				return fmt.Errorf("as user %d, its own, anybody opens %s of process %d, which holds the namespaces: it is dumpable", owner.Uid, name, b.holder)
			}
		}
		return nil
	})
}

// asUser calls a function as another user, without capabilities.
func asUser(uid, gid uint32, do func() error) error {
	return proc.OnThread(func() error {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); errno != 0 {
			return fmt.Errorf("become group %d: %w", gid, errno)
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			return fmt.Errorf("become user %d: %w", uid, errno)
		}
		none, header := [2]unix.CapUserData{}, unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capset(&header, &none[0]); err != nil { // the change of the user did not drop root's capabilities
			return err
		}
		return do()
	})
}

func checkAppOfSandbox(ctx context.Context, b *sandbox) error {
	for range 2 { // the pod must continue to run after its app has ended
		a := must(b.add(ctx))
		try(b.hold(a.pid))
		try(a.remove(ctx))
	}
	return b.hold(b.holder)
}

func checkStopSandbox(ctx context.Context, b *sandbox) error {
	a := must(b.add(ctx))
	try(b.StopSandbox(ctx, b.id, 0))
	must(b.WaitSandbox(ctx, b.id))
	try(a.ends(ctx, "", 137))
	return eventually(ctx, "the process that holds the namespaces to go", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", b.holder))
		return err != nil
	})
}

// hostnameOf returns the hostname that a process sees.
func hostnameOf(pid int) (name string, err error) {
	err = proc.OnThread(func() error {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/uts", pid))
		if err != nil {
			return err
		}
		defer f.Close()
		if err = unix.Setns(int(f.Fd()), unix.CLONE_NEWUTS); err == nil {
			name, err = os.Hostname()
		}
		return err
	})
	return name, err
}
