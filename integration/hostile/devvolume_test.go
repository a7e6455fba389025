package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// CVE-2026-41579's class: the image's /dev is a link into a volume, for example into the host's /dev
// of a monitoring agent. The container's user may write nothing there, but the runtime, which is
// root, may.
func TestADevOfTheImageThatLeadsIntoAVolumeChangesNothingThere(t *testing.T) {
	unprivileged := []oci.SpecOpts{oci.WithUIDGID(1000, 1000), oci.WithCapabilities(nil), oci.WithNoNewPrivileges}
	asRunc := func(c *column, _ string) string {
		if c.usesRunc() {
			return "runc 1.5.1 makes and removes files below a /dev that is a link into a volume"
		}
		return ""
	}
	const runcLoses = "runc itself loses: its column shows that the attack is real"
	try := func(terminal bool, opts ...oci.SpecOpts) func(*lab) {
		return func(l *lab) {
			volume := l.volume("dev")
			for name, number := range map[string]uint64{"null": unix.Mkdev(1, 3), "tty": unix.Mkdev(5, 0), "ptmx": unix.Mkdev(5, 2)} {
				if err := unix.Mknod(filepath.Join(volume, name), unix.S_IFCHR|0o600, int(number)); err != nil {
					l.t.Fatal(err)
				}
			}
			if err := os.Chmod(volume, 0o755); err != nil {
				l.t.Fatal(err)
			}
			opts := append(slices.Concat(unprivileged, opts), oci.WithMounts([]specs.Mount{bind(volume, l.canary.path(hostDir))}))
			before := l.filesOf(volume)
			l.once(func() {
				_ = l.victim(spec{image: "dev-is-a-link", args: []string{"/bin/attacker", "look"}, opts: opts, terminal: terminal})
				if after := l.filesOf(volume); !slices.Equal(before, after) {
					l.got("the volume had %s, and has %s", strings.Join(before, ", "), strings.Join(after, ", "))
				}
			})
		}
	}
	hostile(t, attack{classes: "CVE-2026-41579", name: "an image's /dev is a link into a volume, in which the container's user may not write", modes: []mode{
		{name: "a mount on /dev", wins: asRunc, unproved: runcLoses, try: try(false)},
		{name: "a mount on /dev, a terminal", wins: asRunc, unproved: runcLoses, try: try(true)},
		{name: "no mount on /dev", wins: asRunc, unproved: runcLoses, try: try(false, oci.WithoutMounts("/dev", "/dev/pts", "/dev/shm", "/dev/mqueue"))},
	}})
}

// filesOf describes the files of a directory.
func (l *lab) filesOf(dir string) (all []string) {
	l.t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, e := range entries {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, e.Name()), &st); err != nil {
			l.t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s %o %d:%d %x", e.Name(), st.Mode, st.Uid, st.Gid, st.Rdev))
	}
	return all
}
