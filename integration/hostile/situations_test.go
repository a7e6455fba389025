package hostile

import (
	"slices"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/hostile/loot"
)

// situation is a way of making a container that tries the fixed list of ways out of ./attacker: as its first
// process, as execs and as a debug app.
type situation struct {
	name string
	opts []oci.SpecOpts
	task []containerd.NewTaskOpts
	// users is set if the container has a user namespace.
	users bool
	// admin is set if the container has CAP_SYS_ADMIN in the host's user namespace.
	admin bool
	// pod is set if the container is in a pod with a holder, or with a pause container.
	pod bool
	// short has the situation in the short form as well.
	short bool
	// proofs are columns of which some way must be open that is closed in runc.
	proofs []string
}

// situations returns all combinations of profiles, users and pods, and those in which earlier
// releases were attacked with success beside them.
func situations() (all []situation) {
	type part struct {
		name  string
		opts  []oci.SpecOpts
		users bool
	}
	for _, profile := range []part{{name: "no seccomp profile"}, {name: "seccomp profile", opts: []oci.SpecOpts{seccomp.WithDefaultProfile()}}} {
		for _, user := range []part{{name: "root"}, {name: "user 1000", opts: []oci.SpecOpts{oci.WithUIDGID(1000, 1000)}},
			{name: "user namespace", opts: []oci.SpecOpts{userNamespace()}, users: true}} {
			for _, pod := range []string{"", ", pod"} {
				s := situation{name: profile.name + ", " + user.name + pod, users: user.users, pod: pod != ""}
				s.opts = slices.Concat(user.opts, profile.opts) // the profile depends on the capabilities
				all = append(all, s)
			}
		}
	}
	noPivot := []containerd.NewTaskOpts{containerd.WithNoPivotRoot}
	all = append(all,
		situation{name: "no seccomp profile, CAP_SYS_ADMIN", admin: true, opts: []oci.SpecOpts{oci.WithAddedCapabilities([]string{"CAP_SYS_ADMIN"})}},
		situation{name: "no seccomp profile, root, no_pivot_root", task: noPivot},
		situation{name: "no seccomp profile, user namespace, no_pivot_root", task: noPivot, opts: []oci.SpecOpts{userNamespace()}, users: true},
	)
	for i := range all {
		all[i].short = slices.Contains(shortSituations, all[i].name)
		if all[i].name == shortSituations[0] {
			all[i].proofs = []string{nspawnOld}
		}
	}
	return all
}

// shortSituations are those of the short form. Without a profile more ways are open than with one.
var shortSituations = []string{"no seccomp profile, root", "no seccomp profile, root, pod", "no seccomp profile, user namespace, no_pivot_root"}

// Without a seccomp profile, the default of ctr and of Kubernetes, a container makes namespaces in which it is
// root. What it then mounts must show nothing of the host's.
func TestNothingIsOpenThatRuncCloses(t *testing.T) {
	var modes []mode
	for _, s := range situations() {
		m := mode{name: s.name, try: s.try, compared: true, rare: !s.short, users: s.users, proofs: s.proofs,
			ownMachine: s.pod || s.task != nil, notFor: s.notFor}
		if s.proofs == nil {
			m.unproved = "the first mode shows that the attacks are real"
		}
		modes = append(modes, m)
	}
	hostile(t, attack{classes: "class of CVE-2022-0492", name: "a container tries every way that new namespaces open", modes: modes})
}

func (s situation) notFor(c *column) string {
	if s.task != nil && c.ofMachines() {
		return "a machine's containers have a root of their own either way"
	}
	if s.users && s.pod && c.ofMachines() {
		return "this pod shares the host's network, which a machine cannot reach"
	}
	if s.admin && c.ofMachines() { // it can mount the share of its pod. TestAContainerWithAllRightsInItsMachine… attacks the host
		return "a container with CAP_SYS_ADMIN is root of its machine"
	}
	return ""
}

func (s situation) try(l *lab) {
	// Others whose cgroups and processes might be reached.
	l.attacker(sleeper(slices.Concat(s.opts, []oci.SpecOpts{cgroupMount})...))
	l.once(func() { s.holes(l) })
	if l.madeByInit() && len(l.result.Holes) > 0 {
		l.once(func() { s.holes(l) }) // what a plan has made is now made by init, and the other way round
	}
}

// cgroupMount shows the container its cgroups, read-only, as Kubernetes does.
var cgroupMount = oci.WithMounts([]specs.Mount{mount("cgroup", "cgroup", "/sys/fs/cgroup", "ro", "nosuid", "noexec", "nodev")})

// holes makes a container, and has it try everything as its first process, as an exec and as a
// debug app.
func (s situation) holes(l *lab) {
	l.t.Helper()
	target := spec{image: plainImage, args: []string{"/bin/attacker", "holes", "sleep"}, task: s.task, opts: slices.Concat(s.opts, []oci.SpecOpts{cgroupMount})}
	if s.pod {
		shared := podNamespaces
		if s.users {
			shared = []specs.LinuxNamespaceType{specs.UserNamespace, specs.PIDNamespace, specs.IPCNamespace, specs.UTSNamespace}
		}
		target.pod = l.podWith(s.users)
		target.opts = append(target.opts, target.pod.share(shared...))
	}
	task, said := l.started(target)
	l.verdicts(firstProcess, said)
	l.execHoles(task)
	if why := noDebug(l.column); why == "" {
		l.debugHoles(task)
	} else {
		l.t.Log("no debug app: " + why)
	}
	if comparing {
		target.args = []string{"/bin/true"}
		l.huntBeside(task, target, noDebug(l.column) == "")
	}
}

// Stages are the places from which a container tries its ways out.
const (
	firstProcess = "first process"
	execStage    = "exec"
	debugStage   = "debug app"
)

// verdicts records what a stage has found, and what the test sees from outside.
func (l *lab) verdicts(stage, said string) {
	l.t.Helper()
	holes := loot.Holes(said)
	if len(holes) == 0 {
		l.t.Errorf("%s: nothing was tried: %s", stage, said)
	}
	for _, hierarchy := range l.inRootCgroup() {
		holes["a process is outside of its container's cgroup, "+hierarchy] = open
	}
	l.record(stage, holes)
	for line := range strings.Lines(said) {
		if strings.HasPrefix(line, "probe ") {
			l.t.Log(stage + ": " + line)
		}
	}
}

func (l *lab) record(stage string, holes map[string]string) {
	if l.result.Holes == nil {
		l.result.Holes = map[string]string{}
	}
	for name, verdict := range holes {
		name = stage + ": " + name
		if l.result.Holes[name] != open {
			l.result.Holes[name] = verdict
		}
	}
}
