package hostile

import (
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// noUserNamespaces is the reason for columns without user namespaces.
func noUserNamespaces(c *column) string {
	if c.runtime == "io.containerd.rkt-nspawn.v1" {
		return "the stage1 has no user namespaces, and refuses them"
	}
	return ""
}

// noHost is the reason for columns whose containers cannot be in a namespace of the host.
func noHost(c *column) string {
	if c.ofMachines() {
		return "a machine cannot be in a namespace of the host, and the stage1 refuses it"
	}
	return ""
}

// hunter is a container that examines every process it can see.
func hunter(opts ...oci.SpecOpts) spec {
	return spec{image: plainImage, args: []string{"/bin/attacker", "hunt"}, opts: opts}
}

// bystander is a victim that does nothing. Its runtime is attacked.
func bystander(opts ...oci.SpecOpts) spec {
	return spec{image: plainImage, args: []string{"/bin/true"}, opts: opts}
}

// sleeper is a victim in which others execute programs.
func sleeper(opts ...oci.SpecOpts) spec {
	return spec{image: plainImage, args: []string{"/bin/attacker", "sleep"}, opts: opts}
}

// podNamespaces are the namespaces that the containers of a pod share.
var podNamespaces = []specs.LinuxNamespaceType{specs.PIDNamespace, specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace}

// CVE-2016-9962: a process of runc that entered a container could be traced from inside, and
// had descriptors of the host.
func TestAContainerGetsNothingOfTheProcessesThatEnterIt(t *testing.T) {
	execs := func(opts ...oci.SpecOpts) func(*lab) {
		return func(l *lab) {
			task := l.attacker(hunter(opts...))
			l.race(func() { _ = l.exec(task, []string{"/bin/true"}) })
		}
	}
	const asOfOld = "the hole was closed in runc 1.0.0-rc3; what rc2 is built of can no longer be had as modules. The hunter is the one that wins with SYS_PTRACE"
	hostile(t, attack{classes: "CVE-2016-9962", name: "hunt for processes that enter the container", modes: []mode{
		{name: "execs", try: execs(), unproved: asOfOld},
		{name: "execs, seccomp", rare: true, try: execs(seccomp.WithDefaultProfile()), unproved: asOfOld},
		{name: "execs, user namespace", rare: true, try: execs(userNamespace()), users: true, unproved: asOfOld},
		{name: "execs, user namespace, SYS_PTRACE", try: execs(userNamespace(), oci.WithAddedCapabilities([]string{"CAP_SYS_PTRACE"})),
			users: true, proofs: []string{nativeOld}},
		{name: "execs, user namespace, all capabilities", rare: true, try: execs(userNamespace(), oci.WithAllKnownCapabilities),
			users: true, proofs: []string{nativeOld}},
		{name: "execs, SYS_PTRACE", rare: true, try: execs(oci.WithAddedCapabilities([]string{"CAP_SYS_PTRACE"})),
			wins: tracing, proofs: []string{runc111}},
	}})
}

// tracing is the reason why a container with SYS_PTRACE and without a user namespace succeeds.
func tracing(c *column, _ string) string {
	if c.ofMachines() {
		return "SYS_PTRACE is the right to trace every process that the container sees, and the containers of a machine are in its first user namespace. " +
			"With native's supervisor the container has the machine, and nothing of the host"
	}
	return "SYS_PTRACE in the host's user namespace is the right to trace every process that the container sees. " +
		"A runtime's process is one of them from its entry into the PID namespace to its exec, by runc and by us"
}

// tracingRunc is the reason why runc's init can be traced by a container with the same rights.
func tracingRunc(c *column, loot string) string {
	// The socket is that of runc's init. A process that was seized there may have executed its
	// container's program before the hunter examines it.
	if c.shims == earlierDir || !c.usesRunc() || !strings.Contains(loot, "with a descriptor of socket") {
		return ""
	}
	return "runc's init has no more rights than its container once it has given them up, and until it executes the program " +
		"whoever has the same rights and sees it may trace it. It is runc's, by its own shim and in the stage1 oci"
}

// ownerOfUsers is the reason why a container of the host's root succeeds against runc.
func ownerOfUsers(c *column, _ string) string {
	if c.shims == earlierDir || !c.usesRunc() {
		return ""
	}
	return "who made a user namespace has all capabilities over what is in it, and the host's root made it: runc's init can be traced, and its root " +
		"is the host's, from its birth there until it makes itself undumpable. It is runc's, by its own shim and in the stage1 oci"
}

// A variant of CVE-2016-9962: the victim is a container that is made in the attacker's PID
// namespace.
func TestAContainerGetsNothingOfWhatMakesItsNeighbours(t *testing.T) {
	neighbours := func(shared []specs.LinuxNamespaceType, opts ...oci.SpecOpts) func(*lab) {
		return func(l *lab) {
			task := l.attacker(hunter(opts...))
			l.race(func() { _ = l.victim(bystander(append(opts, joining(task, shared...))...)) })
		}
	}
	ptrace := oci.WithAddedCapabilities([]string{"CAP_SYS_PTRACE"})
	withUsers := append([]specs.LinuxNamespaceType{specs.UserNamespace}, podNamespaces...)
	const asOfOld = "no release is known that lost so. The hunter is the one that wins with SYS_PTRACE"
	hostile(t, attack{classes: "CVE-2016-9962", name: "hunt for processes that make a container beside", modes: []mode{
		{name: "PID namespace shared", try: neighbours(podNamespaces), unproved: asOfOld, wins: tracingRunc},
		{name: "PID namespace shared, user namespace", rare: true, try: neighbours(withUsers, userNamespace()), users: true, unproved: asOfOld},
		{name: "PID namespace shared, user namespace, SYS_PTRACE", try: neighbours(withUsers, userNamespace(), ptrace),
			users: true, proofs: []string{nativeOld}},
		{name: "PID namespace shared, SYS_PTRACE", rare: true, try: neighbours(podNamespaces, ptrace), wins: tracing, proofs: []string{runc111}},
		{name: "hostPID", alone: true, unproved: asOfOld, wins: tracingRunc, notFor: noHost, try: func(l *lab) {
			l.attacker(hunter(oci.WithHostNamespace(specs.PIDNamespace)))
			l.race(func() { _ = l.victim(bystander()) })
		}},
		{name: "PID namespace shared, execs in the other", unproved: asOfOld, wins: tracingRunc, try: func(l *lab) {
			task := l.attacker(hunter())
			other := l.attacker(sleeper(joining(task, podNamespaces...)))
			l.race(func() { _ = l.exec(other, []string{"/bin/true"}) })
		}},
		{name: "hostPID, execs in a container with a user namespace", alone: true, unproved: asOfOld, wins: ownerOfUsers, users: true, notFor: noHost, try: func(l *lab) {
			other := l.attacker(sleeper(userNamespace()))
			l.attacker(hunter(oci.WithHostNamespace(specs.PIDNamespace)))
			l.race(func() { _ = l.exec(other, []string{"/bin/true"}) })
		}},
		{name: "hostPID, the victim in a user namespace", alone: true, proofs: []string{nativeOld}, wins: ownerOfUsers, users: true, notFor: noHost, try: func(l *lab) {
			l.attacker(hunter(oci.WithHostNamespace(specs.PIDNamespace)))
			l.race(func() { _ = l.victim(bystander(userNamespace())) })
		}},
	}})
}

// The process that holds the namespaces of a pod without a pause container must refuse the same
// accesses below /proc/PID/root as a pause container.
func TestAContainerGetsNothingOfWhatHoldsItsPod(t *testing.T) {
	once := spec{image: plainImage, args: []string{"/bin/attacker", "hunt", "once"}}
	in := func(opts ...oci.SpecOpts) func(*lab) {
		return func(l *lab) {
			p := l.pod()
			l.once(func() {
				s := once
				s.pod, s.opts = p, append(opts, p.share(podNamespaces...))
				if err := l.victim(s); err != nil {
					l.t.Fatalf("the attacker could not be run: %v", err)
				}
			})
		}
	}
	olds := []string{nativeOld, ociOld, nspawnOld}
	hostile(t, attack{classes: "class of CVE-2019-19921", name: "hunt for the process that holds the pod's namespaces", modes: []mode{
		{name: "shareProcessNamespace", ownMachine: true, try: in(), proofs: olds},
		{name: "shareProcessNamespace, no capability, seccomp", ownMachine: true, try: in(oci.WithCapabilities(nil), seccomp.WithDefaultProfile()), proofs: olds},
		{name: "shareProcessNamespace, the pause image's user", ownMachine: true, try: in(oci.WithUIDGID(65535, 65535), oci.WithCapabilities(nil)),
			unproved: "the holders of earlier releases were root's"},
		{name: "hostPID", alone: true, proofs: olds, notFor: noHost, try: func(l *lab) {
			l.pod()
			l.once(func() {
				s := once
				s.opts = []oci.SpecOpts{oci.WithHostNamespace(specs.PIDNamespace), oci.WithCapabilities(nil)}
				if err := l.victim(s); err != nil {
					l.t.Fatalf("the attacker could not be run: %v", err)
				}
			})
		}},
	}})
}

// CVE-2019-5736: a container made runc execute itself in the container, and wrote to runc's
// program on the host.
func TestAContainerDoesNotWriteToTheRuntimesPrograms(t *testing.T) {
	overwrite := []string{"/bin/attacker", "overwrite"}
	hostile(t, attack{classes: "CVE-2019-5736", name: "write to the runtime's program through /proc/PID/exe", modes: []mode{
		{name: "execs of a script of /proc/self/exe", proofs: []string{runcRC6}, try: func(l *lab) {
			task := l.attacker(spec{image: dynamicImage, args: overwrite})
			l.race(func() { _ = l.exec(task, []string{again}) })
		}},
		{name: "PID namespace shared with containers whose program is such a script", proofs: []string{runcRC6}, try: func(l *lab) {
			task := l.attacker(spec{image: dynamicImage, args: overwrite})
			l.race(func() {
				s := bystander(joining(task, podNamespaces...))
				s.image, s.args = dynamicImage, []string{again}
				_ = l.victim(s)
			})
		}},
	}})
}
