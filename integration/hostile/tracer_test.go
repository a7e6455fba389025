package hostile

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// byPlan has an exec made by a plan of system calls, whatever the lab has chosen.
func byPlan(p *specs.Process) { p.IOPriority = nil }

// onItsSocket is the reason why a tracer seizes a process that native makes by a plan: the process is one of
// the container already, but for the socket on which it says that it has failed.
func onItsSocket(c *column, loot string) string {
	if c.usesRunc() || c.ofMachines() {
		return tracing(c, loot)
	}
	if strings.Contains(loot, "with a descriptor of socket") {
		return "the process has the rights of its program when it appears, and a socket on which it can say that it has failed"
	}
	return ""
}

// A container with SYS_PTRACE takes over every process that appears in its PID namespace. An exec by plan
// has nothing then that the container does not have.
func TestATracerGainsNoRightsFromAnExec(t *testing.T) {
	tracer := func(opts ...oci.SpecOpts) func(*lab) {
		return func(l *lab) {
			task := l.attacker(hunter(append(opts, oci.WithAddedCapabilities([]string{"CAP_SYS_PTRACE"}))...))
			l.race(func() { _ = l.exec(task, []string{"/bin/true"}, byPlan) })
		}
	}
	hostile(t, attack{classes: "class of CVE-2016-9962", name: "take an exec over with SYS_PTRACE", modes: []mode{
		{name: "exec by plan", try: tracer(), wins: onItsSocket, proofs: []string{nativeOld, runc111}},
		{name: "exec by plan, without no_new_privs and with a filter", try: tracer(seccomp.WithDefaultProfile(), oci.WithNewPrivileges), wins: onItsSocket, proofs: []string{nativeOld}},
	}})
}

// The kernel lets a process trace another of its user whose capabilities are a subset of its own, unless that
// one is undumpable. The attacker here has every capability that the exec has, and its user. So only
// undumpability protects what the exec still has of the runtime's.
func TestUndumpabilityAloneProtectsAnExec(t *testing.T) {
	const why = "in no release has a process of the supervisor been dumpable. That the attack is real shows a supervisor that is made dumpable: then the report socket is seized"
	hostile(t, attack{classes: "class of CVE-2016-9962", name: "trace an exec that has no more rights than the attacker", modes: []mode{
		{name: "same user and capabilities", unproved: why, wins: tracingRunc, try: func(l *lab) {
			task := l.attacker(hunter())
			l.race(func() { _ = l.exec(task, []string{"/bin/true"}, byPlan) })
		}},
		{name: "the exec has no capability", unproved: why, wins: tracingRunc, try: func(l *lab) {
			task := l.attacker(hunter())
			l.race(func() {
				_ = l.exec(task, []string{"/bin/true"}, byPlan, func(p *specs.Process) { p.Capabilities = &specs.LinuxCapabilities{} })
			})
		}},
	}})
}

// debug runs a debug app beside a container.
func (l *lab) debug(task containerd.Task) {
	l.t.Helper()
	c := exec.CommandContext(l.ctx, filepath.Join(l.shims, "rktctl"), "debug", task.ID(), "--image", reference(plainImage), "--", "/bin/true")
	c.Env = append(os.Environ(), "RKT_DATA_DIR="+l.dataDir())
	if out, err := c.CombinedOutput(); err != nil {
		l.refused(fmt.Errorf("%w: %s", err, out))
	}
}

// A debug app is made in the PID namespace of its target, which may be hostile.
func TestADebugAppGivesItsTargetNothing(t *testing.T) {
	beside := func(opts ...oci.SpecOpts) func(*lab) {
		return func(l *lab) {
			task := l.attacker(hunter(opts...))
			l.race(func() { l.debug(task) })
			if l.result.Refused == l.result.Tries {
				l.t.Errorf("no debug app was made: %s", l.result.Refusal)
			}
		}
	}
	const why = "the earlier release has no debug apps. The hunter is the one that wins with SYS_PTRACE"
	ptrace := oci.WithAddedCapabilities([]string{"CAP_SYS_PTRACE"})
	hostile(t, attack{classes: "class of CVE-2016-9962", name: "hunt for a debug app beside its target", modes: []mode{
		{name: "default capabilities", try: beside(), notFor: noDebug, unproved: why, wins: tracingRunc},
		{name: "user namespace, SYS_PTRACE", try: beside(userNamespace(), ptrace), users: true, notFor: noDebug, unproved: why},
		{name: "SYS_PTRACE", rare: true, try: beside(ptrace), notFor: noDebug, unproved: why, wins: tracing},
	}})
}

// noDebug is the reason for columns without debug apps.
func noDebug(c *column) string {
	if c.isRunc() || c.shims == earlierDir {
		return "it has no debug apps"
	}
	if c.ofMachines() {
		return "no debug app can join the namespaces in a machine"
	}
	return ""
}

// stopping stops every process that it sees, again and again, before its program is executed if it can.
var stopping = spec{image: plainImage, args: []string{
	"/bin/sh", "-c", "echo ready; while :; do for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = 1 ] || kill -STOP $p; done; done 2>/dev/null",
}}

// A process that joins a container can be stopped by the container. The call must end nevertheless, and
// the shim must serve others meanwhile.
func TestAContainerThatStopsTheProcessesOfExecsBlocksNobody(t *testing.T) {
	const why = "with runc an exec and the shim's other calls wait until the process goes on. It is a denial, and no loot"
	within := func(l *lab, what string, limit time.Duration, call func() error) {
		began := time.Now()
		done := make(chan error, 1)
		go func() { done <- call() }()
		select {
		case err := <-done:
			l.t.Logf("%s took %s: %v", what, time.Since(began).Round(time.Millisecond), err)
		case <-time.After(limit):
			l.got("%s takes more than %s", what, limit)
		}
	}
	hostile(t, attack{classes: "class of CVE-2022-29162", name: "stop the process of an exec", modes: []mode{
		{name: "execs", unproved: why, notFor: func(c *column) string {
			if c.usesRunc() {
				return "runc's exec waits for ever, and with its own shim so do the other calls"
			}
			return ""
		}, try: func(l *lab) {
			task := l.attacker(stopping)
			l.once(func() {
				for i := range 3 {
					p := specs.Process{Args: []string{"/bin/true"}, Cwd: "/", Env: []string{"PATH=/bin"}}
					exec, err := task.Exec(l.ctx, fmt.Sprintf("stopped-%d", i), &p, cio.NullIO)
					if err != nil {
						l.t.Fatal(err)
					}
					within(l, "start", 2*time.Minute, func() error { return exec.Start(l.ctx) })
					within(l, "ps", time.Minute, func() error { _, err := task.Pids(l.ctx); return err })
				}
				within(l, "kill", time.Minute, func() error { return task.Kill(l.ctx, unix.SIGKILL, containerd.WithKillAll) })
				wait.ObserveWithin(l.t, patience, "the container has ended", func() (bool, string) {
					s, err := task.Status(l.ctx)
					return err == nil && s.Status == containerd.Stopped, fmt.Sprint(s, err)
				})
			})
		}},
	}})
}
