package hostile

import (
	"context"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/hostile/loot"
)

// rights are the expected rights of a process: fields of /proc/self/status.
type rights map[string]string

// defaultRights are the rights by containerd's default spec, with its filter of system calls.
func defaultRights() rights {
	return rights{
		"CapPrm": "00000000a80425fb", "CapEff": "00000000a80425fb", "CapBnd": "00000000a80425fb",
		"CapInh": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2",
	}
}

const none = "0000000000000000"

func (r rights) but(changes ...string) rights {
	other := rights{}
	for k, v := range r {
		other[k] = v
	}
	for i := 0; i < len(changes); i += 2 {
		other[changes[i]] = changes[i+1]
	}
	return other
}

// compare reports rights of a process that its spec does not give.
func (l *lab) compare(s loot.State, want rights, uid, gid int) {
	for field, w := range want {
		if got := s.Status[field]; got != w {
			l.got("%s is %s, the spec says %s", field, got, w)
		}
	}
	if s.UID != uid || s.GID != gid {
		l.got("it is %d:%d, the spec says %d:%d", s.UID, s.GID, uid, gid)
	}
}

// CVE-2022-24769 and CVE-2022-29162: processes inherited capabilities that they should not have
// had, and with these could execute programs that have file capabilities. CVE-2026-30892: an
// exec as user 1 ran as root.
func TestAProcessHasTheRightsOfItsSpec(t *testing.T) {
	// Specs had inheritable capabilities before containerd 1.5.11.
	inheritable := func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
		s.Process.Capabilities.Inheritable = s.Process.Capabilities.Bounding
		return nil
	}
	const asked = "the specs of containerd and the defaults of commands were at fault, and the runtimes did what they asked; that a spec is obeyed shows that the look is real"
	state := []string{"/bin/attacker", "state"}
	expect := func(l *lab, want rights, uid, gid int) {
		states := l.states()
		if len(states) != 1 {
			l.t.Fatalf("%d processes tell their rights: %s", len(states), l.said.peek())
		}
		l.compare(states[0], want, uid, gid)
	}
	container := func(want rights, uid, gid int, opts ...oci.SpecOpts) func(*lab) {
		return func(l *lab) {
			l.once(func() {
				if err := l.victim(spec{image: plainImage, args: state, opts: append([]oci.SpecOpts{seccomp.WithDefaultProfile()}, opts...)}); err != nil {
					l.t.Fatal(err)
				}
				expect(l, want, uid, gid)
			})
		}
	}
	exec := func(want rights, uid, gid int, edit func(*specs.Process)) func(*lab) {
		return func(l *lab) {
			task := l.attacker(sleeper(seccomp.WithDefaultProfile()))
			l.once(func() {
				if err := l.exec(task, state, edit); err != nil {
					l.t.Fatal(err)
				}
				expect(l, want, uid, gid)
			})
		}
	}
	d := defaultRights()
	asUser := d.but("CapPrm", none, "CapEff", none)
	as := func(uid, gid uint32) func(*specs.Process) {
		return func(p *specs.Process) { p.User = specs.User{UID: uid, GID: gid} }
	}
	hostile(t, attack{classes: "CVE-2022-24769, CVE-2022-29162, CVE-2026-30892", name: "more rights than the spec gives", modes: []mode{
		{name: "container", try: container(d, 0, 0), unproved: asked},
		{name: "container of a user", try: container(asUser, 1000, 1000, oci.WithUIDGID(1000, 1000)), unproved: asked},
		{name: "container whose spec has inheritable ones", unproved: "this is the proof", wins: func(*column, string) string {
			return "the spec asks for it, as those of containerd before 1.5.11 did: it is a look at the look"
		}, try: container(d, 0, 0, inheritable)},
		{name: "exec", try: exec(d, 0, 0, func(*specs.Process) {}), unproved: asked},
		{name: "exec of user 1", try: exec(asUser, 1, 0, as(1, 0)), unproved: "crun 1.19 to 1.26 took 1 for 0 on its command line; Debian 12's is older"},
		{name: "exec of a user in no group", try: exec(asUser, 1000, 1000, as(1000, 1000)), unproved: asked},
		{name: "exec without capabilities", try: exec(asUser.but("CapBnd", none), 0, 0, func(p *specs.Process) { p.Capabilities = &specs.LinuxCapabilities{} }), unproved: asked},
	}})
}

// An exec gets no further rights if other execs are executed and killed at the same time.
func TestRightsAreNotLostInACrowd(t *testing.T) {
	d := defaultRights()
	hostile(t, attack{classes: "class of CVE-2016-9962", name: "execs beside each other, some of which are killed", modes: []mode{
		{name: "execs", unproved: "no release is known that lost them", try: func(l *lab) {
			task := l.attacker(sleeper(seccomp.WithDefaultProfile()))
			l.race(func() {
				done := make(chan error)
				for i := range 4 {
					go func() {
						args := []string{"/bin/attacker", "state"}
						if i%2 == 1 {
							args = []string{"/bin/sh", "-c", "kill -9 $$"}
						}
						done <- l.exec(task, args)
					}()
				}
				for range 4 {
					if err := <-done; err != nil && !strings.Contains(err.Error(), "killed") {
						l.t.Error(err)
					}
				}
				for _, s := range l.states() {
					l.compare(s, d, 0, 0)
				}
			})
		}},
	}})
}
