package hostile

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// CVE-2019-19921, CVE-2023-27561 and CVE-2023-28642: /proc was a link of the image, so the
// runtime wrote and masked files elsewhere than in /proc.
func TestAnImageWhoseProcIsALinkHasNoContainers(t *testing.T) {
	linked := func(image string) func(*lab) {
		return func(l *lab) {
			l.once(func() {
				s := looking()
				s.image = image
				_ = l.victim(s)
			})
		}
	}
	hostile(t, attack{classes: "CVE-2019-19921, CVE-2023-27561, CVE-2023-28642", name: "an image's /proc or /sys is a link", modes: []mode{
		{name: "/proc", try: linked("proc-is-a-link"), proofs: []string{runc111}},
		{name: "/proc, a relative link", try: linked("proc-is-a-relative-link"), proofs: []string{runcRC6, runc111}},
		{name: "/sys", try: func(l *lab) {
			l.once(func() {
				s := spec{image: "sys-is-a-link", args: []string{"/bin/sh", "-c", "test ! -L /sys || echo '{\"loot\":\"what is masked or read-only is not\",\"how\":\"/sys is a link\"}'"}}
				_ = l.victim(s)
			})
		}, proofs: []string{runc111}},
	}})
}

// CVE-2019-16884: runc wrote the label of AppArmor to a volume that was mounted on /proc.
func TestNothingIsMountedOverProc(t *testing.T) {
	over := func(destination string) func(*lab) {
		return func(l *lab) {
			fake := l.volume("proc")
			for _, dir := range []string{"self/attr/apparmor", "self/fd", "sys/kernel", "thread-self/attr", "1"} {
				mkdir(l, filepath.Join(fake, dir))
			}
			for _, file := range []string{"self/attr/exec", "self/attr/current", "self/attr/apparmor/exec", "self/status", "sys/kernel/cap_last_cap"} {
				write(l, filepath.Join(fake, file), "40\n")
			}
			for fd := range 10 { // a runtime opens its descriptors again
				write(l, filepath.Join(fake, "self/fd", fmt.Sprint(fd)), "")
			}
			l.once(func() { _ = l.victim(looking(oci.WithMounts([]specs.Mount{bind(fake, destination)}))) })
		}
	}
	const refused = "every release has refused it; the mount on /proc itself shows what would be seen"
	hostile(t, attack{classes: "CVE-2019-16884", name: "a volume is mounted over /proc", modes: []mode{
		{name: "/proc", try: over("/proc"), proofs: []string{runcRC6}},
		{name: "/proc/self", try: over("/proc/self"), unproved: refused},
		{name: "/proc/sys", try: over("/proc/sys"), unproved: refused},
		{name: "/p/../proc", try: over("/p/../proc"), proofs: []string{runcRC6}},
	}})
}

// CVE-2025-31133: masked files were covered by the file at the container's /dev/null.
func TestMaskedFilesAreCoveredByTheNullDeviceOnly(t *testing.T) {
	masked := []string{"/bin/attacker", "look", "masked=/proc/keys", "masked=/proc/kcore", "masked=/proc/timer_list"}
	// with returns an attack on a container that has the attacker's /dev, in which prepare
	// makes null. prepare returns whether null changes during the attack.
	with := func(prepare func(l *lab, dev string) bool) func(*lab) {
		return func(l *lab) {
			dev := devices(l)
			again := l.race
			if !prepare(l, dev) {
				again = l.once
			}
			again(func() {
				_ = l.victim(spec{image: plainImage, args: masked, opts: []oci.SpecOpts{
					oci.WithoutMounts("/dev"), first(bind(dev, "/dev")),
				}})
			})
		}
	}
	replace := func(by func(null string)) func(l *lab, dev string) bool {
		return func(_ *lab, dev string) bool {
			null := filepath.Join(dev, "null")
			_ = os.Remove(null)
			by(null)
			return false
		}
	}
	hostile(t, attack{classes: "CVE-2025-31133", name: "/dev/null is replaced", modes: []mode{
		{name: "by a link", proofs: []string{runc111}, try: func(l *lab) {
			with(replace(func(null string) { link(l, "/etc/passwd", null) }))(l)
		}},
		{name: "by a file", proofs: []string{runc111}, try: func(l *lab) {
			with(replace(func(null string) { write(l, null, "not masked\n") }))(l)
		}},
		{name: "by a link, again and again, from a shared volume", proofs: []string{runc111}, try: with(func(l *lab, dev string) bool {
			link(l, "/etc/passwd", filepath.Join(dev, "other"))
			l.swapper(dev, "null", "other")
			return true
		})},
	}})
}

// devices makes a volume that serves as a container's /dev.
func devices(l *lab) (dev string) {
	l.t.Helper()
	dev = l.volume("dev")
	for _, d := range []string{"pts", "shm", "mqueue"} {
		mkdir(l, filepath.Join(dev, d))
	}
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		if err := unix.Mknod(filepath.Join(dev, name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor))); err != nil {
			l.t.Fatal(err)
		}
	}
	return dev
}

// CVE-2025-52565: the terminal of a container is bound to /dev/console before /proc is masked.
// The container had made /dev/console a link to a file there.
func TestTheConsoleIsTheTerminal(t *testing.T) {
	hostile(t, attack{classes: "CVE-2025-52565", name: "the terminal's name is a link into /proc", modes: []mode{
		{name: "volume shared as /dev", proofs: []string{runc111}, try: func(l *lab) {
			dev := devices(l)
			link(l, "/p/ptmx", filepath.Join(dev, "ptmx"))
			link(l, "/p/0", filepath.Join(dev, "pts/0"))
			link(l, "/proc/sys/kernel/core_pattern", filepath.Join(dev, "pts/other"))
			write(l, filepath.Join(dev, "console"), "")
			l.swapper(dev, "pts/0", "pts/other")
			l.race(func() {
				_ = l.victim(spec{image: plainImage, terminal: true, args: []string{"/bin/attacker", "look", "console"}, opts: []oci.SpecOpts{
					oci.WithoutMounts("/dev", "/dev/pts"),
					first(bind(dev, "/dev"), mount("devpts", "devpts", "/p", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620")),
				}})
			})
		}},
		{name: "/dev/console is a link", unproved: "no release is known that follows it to the host", try: func(l *lab) {
			dev := devices(l)
			link(l, "pts/ptmx", filepath.Join(dev, "ptmx"))
			link(l, l.canary.path(hostDir+"/f"), filepath.Join(dev, "console"))
			l.once(func() {
				_ = l.victim(spec{image: plainImage, terminal: true, args: []string{"/bin/attacker", "look", "console"}, opts: []oci.SpecOpts{
					oci.WithoutMounts("/dev"), first(bind(dev, "/dev")),
				}})
			})
		}},
	}})
}

// coverProc runs in the first process of a container, in a mount namespace of its own: it
// mounts files on /proc so that a process that writes to its own OOM score writes to that of
// the first process.
const coverProc = `
mkdir /tmp/old /tmp/new && mount --rbind /proc /tmp/old && mount -t tmpfs none /proc && cd /tmp/old || exit 1
for f in *; do case $f in self|thread-self) ;; *) ln -s /tmp/old/$f /proc/$f;; esac; done
mkdir /proc/self /proc/thread-self
for s in self thread-self; do
	for f in $(ls /tmp/old/self/); do [ $f = oom_score_adj ] || ln -s /tmp/old/$s/$f /proc/$s/$f; done
	: >/proc/$s/oom_score_adj; mount --bind /tmp/old/1/oom_score_adj /proc/$s/oom_score_adj
done
cd /; exec /bin/attacker sleep`

// CVE-2025-52881: an exec writes to its own files in /proc, for example its label. With the
// container's mounts on /proc it wrote to other files.
func TestAnExecWritesToItsOwnFilesInProc(t *testing.T) {
	hostile(t, attack{classes: "CVE-2025-52881", name: "the container covers its /proc before an exec", modes: []mode{
		{name: "a score for the OOM killer", proofs: []string{nativeOld}, try: func(l *lab) {
			task := l.attacker(spec{image: plainImage, args: []string{"/bin/unshare", "-r", "-m", "/bin/sh", "-c", coverProc}, opts: []oci.SpecOpts{score(900)}})
			l.race(func() {
				err := l.exec(task, []string{"/bin/attacker", "state"}, func(p *specs.Process) {
					p.OOMScoreAdj = pointer(950)
					p.Env = append(p.Env, "PROC=/tmp/old")
				})
				for _, s := range l.states() {
					if s.OOM != "950" || s.FirstOOM != "900" {
						l.got("an exec's score of 950 is %s, that of the first process became %s, was 900", s.OOM, s.FirstOOM)
					}
				}
				if l.ofMachines() {
					return // the pid is a proxy's
				}
				if text, _ := os.ReadFile(procFile(int(task.Pid()), "oom_score_adj")); string(text) != "900\n" {
					l.got("a score of the first process became %s, was 900 (%v)", bytes.TrimSpace(text), err)
				}
			})
		}},
		{name: "a label", unproved: "this kernel has neither AppArmor nor SELinux", notFor: func(*column) string {
			if labels, _ := os.ReadFile("/sys/kernel/security/lsm"); len(labels) == 0 {
				return "this kernel has no labels"
			}
			return "it is tried with the score, which is written in the same way"
		}},
	}})
}

// score sets the OOM score of the container's first process.
func score(n int) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
		s.Process.OOMScoreAdj = pointer(n)
		return nil
	}
}

// first puts mounts before the other mounts of a container.
func first(mounts ...specs.Mount) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
		s.Mounts = append(mounts, s.Mounts...)
		return nil
	}
}
