package hostile

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/daemon"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// Each exec of a daemon that was started by chroot(8) is in the machine's root, if the runtime joins the
// mount namespace and does no more. runc has no CVE for it.
func TestAnExecOfADaemonInAChrootDoesNotReachTheMachinesFiles(t *testing.T) {
	executing := func(opts ...oci.SpecOpts) func(*lab) {
		return func(l *lab) {
			in := l.chrooted()
			task, err := in.create(spec{image: plainImage, args: []string{"/bin/attacker", "sleep"}, opts: opts})
			if err != nil {
				l.once(func() { l.refused(err) })
				return
			}
			l.t.Cleanup(func() { in.remove(task) })
			if err := task.Start(in.ctx); err != nil {
				l.t.Fatal(err)
			}
			in.race(func() {
				// The image has no such program: only one of the machine can be found.
				_ = in.exec(task, []string{"/usr/bin/cat", l.canary.path(secretFile)})
				_ = in.exec(task, []string{"/usr/bin/cat", l.canary.path(secretFile)}, func(p *specs.Process) { p.Terminal = true })
				if strings.Contains(in.said.take(), l.canary.secret) {
					in.got("an exec has read a file of the machine: %s", l.canary.path(secretFile))
				}
			})
		}
	}
	const unproved = "the column runc shows that the attack is real"
	wins := func(c *column, _ string) string {
		if c.isRunc() {
			return "runc's execs are in the root of the mount namespace"
		}
		return ""
	}
	machines := func(c *column) string {
		if c.ofMachines() {
			return "a machine's files are in no tree of a chroot"
		}
		return ""
	}
	hostile(t, attack{classes: "–", name: "execs in containers of a daemon that was started by chroot(8)", modes: []mode{
		{name: "default", try: executing(), unproved: unproved, wins: wins, notFor: machines},
		{name: "all capabilities", try: executing(oci.WithAllKnownCapabilities), unproved: unproved, wins: wins, notFor: machines},
	}})
}

// chrooted returns a lab with another daemon, whose root is a tree of bind mounts in a mount namespace of the
// daemon's own.
func (l *lab) chrooted() *lab {
	l.t.Helper()
	n := &node{column: l.column, short: l.short + "c", canary: l.canary}
	dir := filepath.Join(nodesDir, n.short)
	root, programs := dir+"-root", dir+"-programs"
	mkdir(l, root)
	mkdir(l, programs)
	l.t.Cleanup(func() { _ = os.RemoveAll(programs) })
	link(l, filepath.Join(programsDir, "ctr"), filepath.Join(programs, "ctr"))
	path := filepath.Join(programs, "containerd")
	write(l, path, fmt.Sprintf(`#!/bin/sh
exec unshare --mount sh -ec '
	mount -t tmpfs tmpfs %[1]s
	for d in /*; do
		if [ -L "$d" ]; then
			cp -P "$d" %[1]s
		elif [ -d "$d" ]; then
			mkdir "%[1]s$d"
			mount --rbind "$d" "%[1]s$d"
		fi
	done
	exec chroot %[1]s %[2]s/containerd "$@"
' sh "$@"
`, root, programsDir))
	if err := os.Chmod(path, 0o755); err != nil {
		l.t.Fatal(err)
	}
	err := n.startBy(l.ctx, daemon.Options{
		Dir: dir, Programs: programs, Shims: []string{cmp.Or(n.shims, programsDir), n.runc},
		Env: n.environment(), Namespace: "hostile-" + n.short, LogLevel: "info",
	})
	l.t.Cleanup(func() {
		if err := n.close(); err != nil {
			l.t.Error(err)
		}
	})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx := namespaces.WithNamespace(context.WithoutCancel(l.ctx), n.daemon.Namespace())
	return &lab{node: n, t: l.t, ctx: ctx, result: l.result}
}

// startBy starts the node's daemon, and imports the images.
func (n *node) startBy(ctx context.Context, opts daemon.Options) (err error) {
	if n.daemon, err = daemon.Start(ctx, opts); err != nil {
		return err
	}
	images, err := n.images()
	if err != nil {
		return err
	}
	archive := filepath.Join(opts.Dir, "images.tar")
	if err := image.WriteFile(archive, images...); err != nil {
		return err
	}
	defer os.Remove(archive)
	if out, err := n.daemon.Ctr(ctx, "image", "import", archive).CombinedOutput(); err != nil {
		return fmt.Errorf("import images: %w: %s", err, out)
	}
	n.client, err = n.daemon.Client()
	return err
}
