package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// swapper starts a container that exchanges names in a volume, which it has at /vol.
func (l *lab) swapper(volume string, names ...string) {
	l.t.Helper()
	args := []string{"/bin/attacker", "exchange"}
	for _, n := range names {
		args = append(args, "/vol/"+n)
	}
	l.attacker(spec{image: plainImage, args: args, opts: []oci.SpecOpts{oci.WithMounts([]specs.Mount{bind(volume, "/vol")})}})
}

// pairs makes pairs of a directory and a link to a target. Their names are exchanged later.
func (l *lab) pairs(volume, target string, n int) (names []string) {
	l.t.Helper()
	for i := range n {
		dir, lnk := fmt.Sprint("d", i), fmt.Sprint("l", i)
		mkdir(l, filepath.Join(volume, dir))
		link(l, target, filepath.Join(volume, lnk))
		names = append(names, dir, lnk)
	}
	return names
}

// CVE-2021-30465: a directory of a shared volume became a link after the runtime had checked it
// and before it mounted on it. The mount was then made on a directory of the host, below which
// the source of the next mount was a link to the host's root.
func TestAVolumeThatChangesLeadsNoMountToTheHost(t *testing.T) {
	const n = 6
	try := func(links func(l *lab, volumes string) string, opts ...oci.SpecOpts) func(*lab) {
		return func(l *lab) {
			one, two := l.volume("one"), l.volume("two")
			link(l, "/", filepath.Join(two, "two")) // after a mount on the directory of the volumes, this is volume two
			l.swapper(one, l.pairs(one, links(l, filepath.Dir(one)), n)...)
			mounts := []specs.Mount{bind(one, "/vol")}
			for i := range n {
				mounts = append(mounts, bind(two, fmt.Sprintf("/vol/d%d", i)))
			}
			mounts = append(mounts, bind(two, "/vol/last"))
			l.race(func() { _ = l.victim(looking(append(opts, oci.WithMounts(mounts))...)) })
		}
	}
	absolute := func(_ *lab, volumes string) string { return volumes }
	relative := func(_ *lab, volumes string) string { return "../../../../../../../../../../../.." + volumes }
	hostile(t, attack{classes: "CVE-2021-30465", name: "directories of a shared volume are exchanged for links, bind mounts", modes: []mode{
		{name: "volume shared, absolute links", try: try(absolute), proofs: []string{runcRC94}},
		{name: "volume shared, relative links", rare: true, try: try(relative), proofs: []string{runcRC94}},
	}})
}

// CVE-2024-45310, and CVE-2021-30465 with other kinds of mounts: the runtime makes the mount
// point if it is missing, and made it on the host.
func TestAVolumeThatChangesHasNothingMadeOnTheHost(t *testing.T) {
	const n = 6
	try := func(target func(l *lab) string, kind func(l *lab, destination string) specs.Mount) func(*lab) {
		return func(l *lab) {
			volume := l.volume("one")
			l.swapper(volume, l.pairs(volume, target(l), n)...)
			serial := 0
			l.race(func() {
				serial++ // the mount points in the directory stay there
				mounts := []specs.Mount{bind(volume, "/vol")}
				for i := range n {
					mounts = append(mounts, kind(l, fmt.Sprintf("/vol/d%d/new-%d", i, serial)))
				}
				_ = l.victim(looking(oci.WithMounts(mounts)))
			})
		}
	}
	absolute := func(l *lab) string { return l.canary.path(hostDir) }
	relative := func(l *lab) string { return "../../../../../../../../../../../.." + l.canary.path(hostDir) }
	directory := func(l *lab, destination string) specs.Mount {
		return bind(filepath.Join(l.daemon.Dir(), "root"), destination)
	}
	file := func(l *lab, destination string) specs.Mount {
		return bind(filepath.Join(l.daemon.Dir(), "config.toml"), destination)
	}
	tmpfs := func(_ *lab, destination string) specs.Mount { return mount("tmpfs", "tmpfs", destination, "nosuid") }
	const asAbsolute = "it is the same race as that of a file with absolute links, which is shown to win"
	hostile(t, attack{classes: "CVE-2024-45310, CVE-2021-30465", name: "directories of a shared volume are exchanged for links, mount points are made", modes: []mode{
		{name: "a directory, absolute links", rare: true, try: try(absolute, directory), proofs: []string{runc111}},
		{name: "a file, absolute links", try: try(absolute, file), proofs: []string{runc111}},
		{name: "a file, relative links", rare: true, try: try(relative, file), unproved: asAbsolute},
		{name: "a tmpfs, absolute links", rare: true, try: try(absolute, tmpfs), unproved: asAbsolute},
	}})
}

// CVE-2021-30465's class, with tmpcopyup: the runtime copies the files of the directory by name
// to the tmpfs that it mounts there.
func TestWhatIsCopiedUpChangesNoModeOnTheHost(t *testing.T) {
	hostile(t, attack{classes: "CVE-2021-30465, CVE-2024-45310", name: "the directory of a tmpfs with tmpcopyup is exchanged", modes: []mode{
		{name: "volume shared", proofs: []string{nativeOld}, try: func(l *lab) {
			volume := l.volume("one")
			for _, d := range []string{"x", "y"} {
				mkdir(l, filepath.Join(volume, d))
			}
			for i := range 200 {
				file := filepath.Join(volume, "x", fmt.Sprint("f", i))
				write(l, file, "copied\n")
				if err := os.Chmod(file, 0o777|os.ModeSetuid); err != nil {
					l.t.Fatal(err)
				}
			}
			l.attacker(spec{image: plainImage, args: []string{"/bin/attacker", "copy-up", "/vol/x", "/vol/y", l.canary.path(hostDir + "/f")},
				opts: []oci.SpecOpts{oci.WithMounts([]specs.Mount{bind(volume, "/vol")})}})
			l.race(func() {
				_ = l.victim(looking(oci.WithMounts([]specs.Mount{bind(volume, "/vol"), mount("tmpfs", "tmpfs", "/vol/x", "tmpcopyup")})))
			})
		}},
	}})
}
