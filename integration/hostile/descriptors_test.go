package hostile

import (
	"fmt"
	"net"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// looking is a victim, or an attacker that runs once, that looks for everything that it should
// not have.
func looking(opts ...oci.SpecOpts) spec {
	return spec{image: plainImage, args: []string{"/bin/attacker", "look"}, opts: opts}
}

// directories are working directories that lead out of the container if the process that
// changes to them has a directory of the host open.
func directories() (all []string) {
	first, last := 3, 9
	if long {
		first, last = 0, 16
	}
	for fd := first; fd < last; fd++ {
		all = append(all, fmt.Sprintf("/proc/self/fd/%d", fd))
	}
	return append(all, "/proc/1/cwd", "/proc/self/root/..", "/proc/thread-self/root/proc/self/fd/7")
}

// CVE-2024-21626: runc had a directory of the host open when it changed to the working
// directory of a container, which was /proc/self/fd/7.
func TestAWorkingDirectoryDoesNotLeadOut(t *testing.T) {
	hostile(t, attack{classes: "CVE-2024-21626", name: "a working directory in /proc", modes: []mode{
		{name: "of a container", proofs: []string{runc111}, try: func(l *lab) {
			for _, dir := range directories() {
				l.once(func() { _ = l.victim(looking(oci.WithProcessCwd(dir))) })
			}
		}},
		{name: "of an exec", proofs: []string{runc111}, try: func(l *lab) {
			task := l.attacker(sleeper())
			for _, dir := range directories() {
				l.once(func() {
					_ = l.exec(task, []string{"/bin/attacker", "look"}, func(p *specs.Process) { p.Cwd = dir })
				})
			}
		}},
		{name: "of an exec, behind a link that the container makes", proofs: []string{runc111}, try: func(l *lab) {
			task := l.attacker(sleeper())
			for i, dir := range directories() {
				link := fmt.Sprint("/tmp/cwd-", i)
				l.once(func() {
					_ = l.exec(task, []string{"/bin/ln", "-s", dir, link})
					_ = l.exec(task, []string{"/bin/attacker", "look"}, func(p *specs.Process) { p.Cwd = link })
				})
			}
		}},
	}})
}

// CVE-2020-15257: the shim listened on an abstract socket, to which every container in the
// host's network namespace could connect.
func TestAContainerInTheHostsNetworkReachesNoSocketOfTheShims(t *testing.T) {
	const why = "shims of containerd 1.3 are needed; that the attacker finds an abstract socket is seen by one of the test's own"
	hostile(t, attack{classes: "CVE-2020-15257", name: "connect to abstract sockets", modes: []mode{
		{name: "host network", alone: true, unproved: why, notFor: noHost, try: func(l *lab) {
			connect := spec{image: plainImage, args: []string{"/bin/attacker", "connect"}, opts: []oci.SpecOpts{oci.WithHostNamespace(specs.NetworkNamespace)}}
			bait, err := net.Listen("unix", "@bait")
			if err != nil {
				l.t.Fatal(err)
			}
			if err := l.victim(connect); err != nil {
				l.t.Fatal(err)
			}
			bait.Close()
			if taken := l.collect(); len(taken) != 1 {
				l.t.Fatalf("of the bait the attacker says %q", taken)
			}
			l.once(func() { _ = l.victim(connect) })
		}},
		{name: "the network of the machine", unproved: why, notFor: func(c *column) string {
			if c.ofMachines() {
				return ""
			}
			return "its containers have networks of their own"
		}, try: func(l *lab) {
			connect := spec{image: plainImage, args: []string{"/bin/attacker", "connect"}}
			bait := l.attacker(spec{image: plainImage, args: []string{"/bin/attacker", "listen", "bait"}})
			if err := l.victim(connect); err != nil {
				l.t.Fatal(err)
			}
			if taken := l.collect(); len(taken) != 1 {
				l.t.Fatalf("of the bait the attacker says %q", taken)
			}
			if err := bait.Kill(l.ctx, unix.SIGKILL); err != nil {
				l.t.Fatal(err)
			}
			wait.ObserveWithin(l.t, patience, "the bait has ended", func() (bool, string) {
				s, err := bait.Status(l.ctx)
				return err == nil && s.Status == containerd.Stopped, fmt.Sprint(s, err)
			})
			l.once(func() { _ = l.victim(connect) })
		}},
	}})
}
